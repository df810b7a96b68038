#include "comm/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "comm/add.h"

namespace trireme::comm {
namespace {

using Transfers = std::vector<std::unique_ptr<Transfer>>;

// Elements of a slice that travel in one message: large against the cost of a message, small against the caches, and
// fewer where the chunks of many ranks would take more scratch than this.
constexpr std::int64_t kMostChunkNumel = std::int64_t{128} << 10, kLeastChunkNumel = std::int64_t{4} << 10;
constexpr std::int64_t kScratchBytes = std::int64_t{8} << 20;

std::int64_t chunk_numel_of(int chunks, DType dtype) {
  const std::int64_t fits = kScratchBytes / (2 * std::max(chunks, 1) * size_of(dtype));
  return std::clamp(fits, kLeastChunkNumel, kMostChunkNumel);
}

void wait_all(Transfers& transfers) {
  for (const auto& transfer : transfers) {
    if (transfer) transfer->wait();
  }
  transfers.clear();
}

// Every rank's part to every rank: part(r) is where rank r's lies here. Each begins with its neighbours.
template <class Part>
void exchange(Communicator& comm, Part part) {
  const int me = comm.rank(), world_size = comm.world_size();
  Transfers transfers;
  for (int distance = 1; distance < world_size; ++distance) {
    const int from = (me + world_size - distance) % world_size, to = (me + distance) % world_size;
    transfers.push_back(comm.receive(part(from), from));
    transfers.push_back(comm.send(part(me), to));
  }
  wait_all(transfers);
}

// Of each parity: what every participant sends here and, where slots are rounded, what goes to every rank.
int num_chunks_of(const ReduceTypes& types, int participants, int world_size) {
  return participants + (types.slot != types.wire ? world_size : 0);
}

// The part of numel elements that a rank sums: slices of equal size, the last ones shorter or empty where they do not
// come out even.
struct Parts {
  std::int64_t numel, slice_numel;
  std::int64_t begin(int rank) const { return std::min(numel, rank * slice_numel); }
  std::int64_t size(int rank) const { return begin(rank + 1) - begin(rank); }
};

// Sums this rank's part of all participants' slots, chunk by chunk. Scratch holds two chunks of every participant, so
// that one is received while the other is added; and where slots are rounded, two chunks for every rank, to send.
class OrderedSum {
 public:
  OrderedSum(Communicator& comm, const void* slot, const ReduceTypes& types, void* sum, const Parts& parts,
             int participants)
      : comm_(comm),
        slot_(static_cast<const std::byte*>(slot)),
        types_(types),
        sum_(static_cast<std::byte*>(sum)),
        parts_(parts),
        participants_(participants),
        num_chunks_(num_chunks_of(types, participants, comm.world_size())),
        chunk_numel_(chunk_numel_of(num_chunks_, types.wire)),
        stride_(std::min(parts.slice_numel, chunk_numel_) * size_of(types.wire)),
        scratch_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(2 * num_chunks_ * stride_))) {}

  void run(bool overwrite) {
    const std::int64_t count = (parts_.slice_numel + chunk_numel_ - 1) / chunk_numel_;
    if (count > 0) post(0);
    for (std::int64_t chunk = 0; chunk < count; ++chunk) {
      // Before any wait of this chunk: every rank can then go on as soon as the slowest has posted.
      if (chunk + 1 < count) post(chunk + 1);
      add(chunk, overwrite);
      wait_all(sends_[chunk % 2]);
    }
  }

 private:
  bool rounds() const { return types_.slot != types_.wire; }

  // Of a chunk of a rank's part.
  std::int64_t numel(int rank, std::int64_t chunk) const {
    return std::clamp(parts_.size(rank) - chunk * chunk_numel_, std::int64_t{0}, chunk_numel_);
  }
  std::size_t bytes(int rank, std::int64_t chunk) const {
    return static_cast<std::size_t>(numel(rank, chunk) * size_of(types_.wire));
  }

  // A chunk of a rank's part of this rank's own slot, as it is sent.
  const std::byte* own(int rank, std::int64_t chunk) const {
    const std::byte* values = slot_ + (parts_.begin(rank) + chunk * chunk_numel_) * size_of(types_.slot);
    if (!rounds()) return values;
    std::byte* rounded = scratch(participants_ + rank, chunk);
    convert_values(values, types_.slot, rounded, types_.wire, numel(rank, chunk));
    return rounded;
  }

  std::byte* scratch(int place, std::int64_t chunk) const {
    return scratch_.get() + (chunk % 2 * num_chunks_ + place) * stride_;
  }

  void post(std::int64_t chunk) {
    const int me = comm_.rank(), world_size = comm_.world_size();
    Transfers& receives = receives_[chunk % 2];
    receives.resize(participants_);
    // Each rank begins with its neighbours, lest all of them crowd rank 0.
    for (int distance = 1; distance < world_size; ++distance) {
      const int from = (me + world_size - distance) % world_size, to = (me + distance) % world_size;
      if (from < participants_) receives[from] = comm_.receive({scratch(from, chunk), bytes(me, chunk)}, from);
      if (me < participants_) sends_[chunk % 2].push_back(comm_.send({own(to, chunk), bytes(to, chunk)}, to));
    }
  }

  void add(std::int64_t chunk, bool overwrite) {
    const int me = comm_.rank();
    std::byte* sum = sum_ + chunk * chunk_numel_ * size_of(types_.sum);
    const std::byte* mine = me < participants_ ? own(me, chunk) : nullptr;
    if (mine == sum) {  // in place: the sum is about to overwrite it
      std::memcpy(scratch(me, chunk), mine, bytes(me, chunk));
      mine = scratch(me, chunk);
    }
    for (int source = 0; source < participants_; ++source) {
      if (source != me) receives_[chunk % 2][source]->wait();
      add_values(sum, types_.sum, source == me ? mine : scratch(source, chunk), types_.wire, numel(me, chunk),
                 overwrite && source == 0);
    }
    receives_[chunk % 2].clear();
  }

  Communicator& comm_;
  const std::byte* slot_;
  ReduceTypes types_;
  std::byte* sum_;
  Parts parts_;
  int participants_, num_chunks_;  // in scratch, twice
  std::int64_t chunk_numel_, stride_;
  std::unique_ptr<std::byte[]> scratch_;
  std::array<Transfers, 2> receives_, sends_;  // below scratch_: they end before it does
};

}  // namespace

// Dissemination: after round k every rank has heard, at least through others, from 2^(k+1) ranks.
void barrier(Communicator& comm) {
  const int me = comm.rank(), world_size = comm.world_size();
  for (int distance = 1; distance < world_size; distance *= 2) {
    std::byte out{}, in{};
    Transfers transfers;
    transfers.push_back(comm.receive({&in, 1}, (me + world_size - distance) % world_size));
    transfers.push_back(comm.send({&out, 1}, (me + distance) % world_size));
    wait_all(transfers);
  }
}

// A binomial tree over the distance from the root: whoever has the bytes hands them on to ever nearer ranks.
void broadcast(Communicator& comm, std::span<std::byte> bytes, int root) {
  const int world_size = comm.world_size();
  TRIREME_CHECK(root >= 0 && root < world_size, "broadcast from a rank that does not exist");
  const int distance = (comm.rank() + world_size - root) % world_size;
  int step = 1;
  while (step < world_size && distance % (2 * step) == 0) step *= 2;
  if (distance != 0) comm.receive(bytes, (distance - step + root) % world_size)->wait();
  Transfers sends;
  for (step /= 2; step >= 1; step /= 2) {
    if (distance + step < world_size) sends.push_back(comm.send(bytes, (distance + step + root) % world_size));
  }
  wait_all(sends);
}

std::string broadcast_text(Communicator& comm, std::string text) {
  std::uint64_t size = text.size();
  broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), 0);
  text.resize(size);
  broadcast(comm, std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void all_gather(Communicator& comm, std::span<const std::byte> mine, std::span<std::byte> all) {
  const int me = comm.rank(), world_size = comm.world_size();
  TRIREME_CHECK(all.size() == mine.size() * world_size, "all_gather: the result holds one part per rank");
  const auto part = [&](int rank) { return all.subspan(rank * mine.size(), mine.size()); };
  if (!mine.empty() && part(me).data() != mine.data()) std::memcpy(part(me).data(), mine.data(), mine.size());
  exchange(comm, part);
}

std::int64_t ordered_scratch_bytes(const ReduceTypes& types, std::int64_t slice_numel, int participants,
                                   int world_size) {
  const int chunks = num_chunks_of(types, participants, world_size);
  return 2 * chunks * std::min(slice_numel, chunk_numel_of(chunks, types.wire)) * size_of(types.wire);
}

void ordered_reduce_scatter(Communicator& comm, const void* slot, const ReduceTypes& types, void* sum,
                            std::int64_t slice_numel, int participants, bool first) {
  TRIREME_CHECK(participants >= 0 && participants <= comm.world_size(), "participants are ranks of this communicator");
  if (slice_numel == 0) return;  // nothing is sent, and an empty slot may have no address
  TRIREME_CHECK((slot != nullptr) == (comm.rank() < participants), "exactly the participants pass a slot");
  if (participants == 0) return;
  OrderedSum(comm, slot, types, sum, {slice_numel * comm.world_size(), slice_numel}, participants).run(first);
}

void ordered_scatter_sums(Communicator& comm, void* accumulator, DType dtype, std::int64_t slice_numel) {
  std::byte* mine = static_cast<std::byte*>(accumulator) + comm.rank() * slice_numel * size_of(dtype);
  ordered_reduce_scatter(comm, accumulator, {dtype, dtype, dtype}, mine, slice_numel, comm.world_size(), true);
}

void ordered_all_reduce(Communicator& comm, void* values, DType dtype, std::int64_t numel) {
  const int me = comm.rank(), world_size = comm.world_size();
  const Parts parts{numel, (numel + world_size - 1) / world_size};
  std::byte* const bytes = static_cast<std::byte*>(values);
  const auto part = [&](int rank) {
    return std::span(bytes + parts.begin(rank) * size_of(dtype),
                     static_cast<std::size_t>(parts.size(rank) * size_of(dtype)));
  };
  OrderedSum(comm, values, {dtype, dtype, dtype}, part(me).data(), parts, world_size).run(true);
  exchange(comm, part);
}

}  // namespace trireme::comm
