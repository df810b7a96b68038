#include "engine/device_ranks.h"

#include <algorithm>
#include <vector>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme::engine {
namespace {

using Pieces = std::vector<comm::Nccl::Piece>;

// Parts that arrive at a time take no more: enough for the links to be at their rate, little beside a large group.
constexpr std::int64_t kScratchBytes = std::int64_t{128} << 20;

// Elements of each rank's part that travel at once, a multiple of 256.
std::int64_t chunk_numel_of(int world_size, DType dtype) {
  return std::max(kScratchBytes / world_size / size_of(dtype) / 256, std::int64_t{1}) * 256;
}

// None, unless where it is.
std::byte* moved(const void* data, std::int64_t bytes) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + bytes;
}

void add_all(const std::vector<const std::byte*>& slots, const comm::ReduceTypes& types, std::int64_t numel,
             std::byte* sum, bool overwrite) {
  dispatch(types.slot, [&]<class T>(T) {
    std::vector<const T*> typed;
    for (const std::byte* slot : slots) typed.push_back(reinterpret_cast<const T*>(slot));
    kernels::table<T>().accumulate_all(numel, static_cast<int>(typed.size()), typed.data(), types.wire, types.sum, sum,
                                       overwrite);
  });
}

}  // namespace

// The first transfers make NCCL's connections, in which the host waits for its peers: here, not in a step, where it has
// to be able to leave.
DeviceRanks::DeviceRanks(comm::Communicator& ranks, const Memory& scratch)
    : rank_(ranks.rank()),
      world_size_(ranks.world_size()),
      scratch_(scratch),
      nccl_(std::make_unique<comm::Nccl>(ranks)) {
  constexpr std::int64_t kBytes = 256;
  const kernels::Stream stream;
  const Memory mine(kBytes, MemoryKind::device), all(kBytes * world_size(), MemoryKind::device);
  Pieces sends, receives;
  for (const int peer : peers_in_turn()) {
    sends.push_back({mine.at(0), kBytes, peer});
    receives.push_back({all.at(peer * kBytes), kBytes, peer});
  }
  const kernels::OnStream on(stream);
  exchange(sends, receives);
  all_gather(mine.at(0), all.at(0), kBytes);
  stream.synchronize();
}

DeviceRanks::DeviceRanks(comm::Communicator& ranks, const Memory& scratch, std::vector<const Memory*> targets)
    : rank_(ranks.rank()), world_size_(ranks.world_size()), scratch_(scratch) {
  targets.push_back(&scratch_);
  copies_ = std::make_unique<PeerCopies>(ranks, std::move(targets));
}

void DeviceRanks::throw_if_failed() const {
  if (nccl_ != nullptr) nccl_->throw_if_failed();
}
void DeviceRanks::abort() noexcept {
  if (nccl_ != nullptr) nccl_->abort();
  if (copies_ != nullptr) copies_->abort();
}

void DeviceRanks::exchange(std::span<const Piece> sends, std::span<const Piece> receives) {
  if (copies_ != nullptr) return copies_->exchange(sends, receives);
  nccl_->exchange(sends, receives, kernels::current_stream());
}

// The part of numel elements that a rank sums: slices of equal size, the last ones shorter or empty where they do not
// come out even.
struct DeviceRanks::Parts {
  std::int64_t numel, slice_numel;
  std::int64_t begin(int rank) const { return std::min(numel, rank * slice_numel); }
  std::int64_t size(int rank) const { return begin(rank + 1) - begin(rank); }
};

std::int64_t device_scratch_bytes(const comm::ReduceTypes& types, std::int64_t slice_numel, int participants,
                                  int world_size) {
  return participants * std::min(slice_numel, chunk_numel_of(world_size, types.wire)) * size_of(types.wire);
}

void DeviceRanks::all_gather(const std::byte* mine, std::byte* all, std::int64_t bytes) {
  if (nccl_ != nullptr) return nccl_->all_gather(mine, all, bytes, kernels::current_stream());
  std::byte* const own = all + rank() * bytes;
  Pieces sends, receives;
  for (const int peer : peers_in_turn()) {
    sends.push_back({moved(mine, 0), bytes, peer, own});
    receives.push_back({all + peer * bytes, bytes, peer});
  }
  if (mine != own) kernels::copy(own, mine, bytes);
  exchange(sends, receives);
}

// From the next one on, so that not all send to the same at first.
std::vector<int> DeviceRanks::peers_in_turn() const {
  std::vector<int> peers;
  for (int next = 1; next < world_size(); ++next) peers.push_back((rank() + next) % world_size());
  return peers;
}

// This rank's part of all participants' slots, chunk by chunk.
void DeviceRanks::sum_parts(const std::byte* slot, const comm::ReduceTypes& types, std::byte* sum, const Parts& parts,
                            int participants, bool overwrite) {
  TRIREME_CHECK(types.wire == types.slot, "slots of devices are sent as they are");
  const int me = rank();
  const std::int64_t element = size_of(types.slot), chunk_numel = chunk_numel_of(world_size(), types.slot);
  const std::int64_t stride = std::min(parts.slice_numel, chunk_numel) * element;
  TRIREME_CHECK(participants * stride <= scratch_.bytes(), "what arrives is planned for");
  for (std::int64_t begin = 0; begin < parts.slice_numel; begin += chunk_numel) {
    const auto bytes = [&](int rank) {
      return std::clamp(parts.size(rank) - begin, std::int64_t{0}, chunk_numel) * element;
    };
    const auto own = [&](int rank) { return moved(slot, (parts.begin(rank) + begin) * element); };
    Pieces sends, receives;
    std::vector<const std::byte*> arrived;
    for (int peer = 0; peer < participants; ++peer) arrived.push_back(scratch_.at(peer * stride));
    for (const int peer : peers_in_turn()) {
      if (me < participants) sends.push_back({own(peer), bytes(peer), peer, scratch_.at(me * stride)});
      if (peer < participants) receives.push_back({scratch_.at(peer * stride), bytes(me), peer});
    }
    exchange(sends, receives);
    std::byte* const total = sum + begin * size_of(types.sum);
    if (me < participants) {
      if (own(me) == total) {  // in place: the sum is about to overwrite it
        kernels::copy(scratch_.at(me * stride), own(me), bytes(me));
      } else {
        arrived[static_cast<std::size_t>(me)] = own(me);
      }
    }
    add_all(arrived, types, bytes(me) / element, total, overwrite);
  }
}

void ordered_reduce_scatter(DeviceRanks& ranks, const void* slot, const comm::ReduceTypes& types, void* sum,
                            std::int64_t slice_numel, int participants, bool first) {
  TRIREME_CHECK(slice_numel == 0 || (slot != nullptr) == (ranks.rank() < participants),
                "exactly the participants pass a slot");
  if (participants == 0) return;
  ranks.sum_parts(static_cast<const std::byte*>(slot), types, static_cast<std::byte*>(sum),
                  {slice_numel * ranks.world_size(), slice_numel}, participants, first);
}

void ordered_scatter_sums(DeviceRanks& ranks, void* accumulator, DType dtype, std::int64_t slice_numel) {
  ordered_reduce_scatter(ranks, accumulator, {dtype, dtype, dtype},
                         moved(accumulator, ranks.rank() * slice_numel * size_of(dtype)), slice_numel,
                         ranks.world_size(), true);
}

void ordered_all_reduce(DeviceRanks& ranks, void* values, DType dtype, std::int64_t numel) {
  const int me = ranks.rank(), world_size = ranks.world_size();
  const DeviceRanks::Parts parts{numel, (numel + world_size - 1) / world_size};
  const auto part = [&](int rank) { return moved(values, parts.begin(rank) * size_of(dtype)); };
  const auto bytes = [&](int rank) { return parts.size(rank) * size_of(dtype); };
  ranks.sum_parts(part(0), {dtype, dtype, dtype}, part(me), parts, world_size, true);
  if (numel % world_size == 0) return ranks.all_gather(part(me), part(0), bytes(me));
  Pieces sends, receives;
  for (const int peer : ranks.peers_in_turn()) {
    sends.push_back({part(me), bytes(me), peer, part(me)});
    receives.push_back({part(peer), bytes(peer), peer});
  }
  ranks.exchange(sends, receives);
}

}  // namespace trireme::engine
