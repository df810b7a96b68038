#include "engine/peer_copies.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "comm/collectives.h"

namespace trireme::engine {
namespace {

constexpr std::chrono::seconds kLongest{10};   // that what was issued takes to end, once nothing waits
constexpr std::uint32_t kFarAhead = 1u << 30;  // of any exchange that may be under way

// Whether the device of this rank reads what the others have written into memory of theirs, by rank.
std::vector<char> seen_by_this(comm::Communicator& ranks) {
  struct Offer {
    kernels::SharedMemory name;
    std::uint64_t word;  // that lies there
  };
  const Memory mine(sizeof(Offer::word), MemoryKind::device);
  Offer offer{kernels::share(mine.at(0)), static_cast<std::uint64_t>(ranks.rank())};
  offer.word ^= offer.name.process;
  kernels::copy_now(mine.at(0), &offer.word, sizeof(offer.word));
  std::vector<char> sees;
  for (const auto& [name, word] : comm::gathered(ranks, offer)) {
    std::uint64_t read = ~word;
    if (std::byte* const opened = ssize(sees) == ranks.rank() ? mine.at(0) : kernels::open_shared(name)) {
      kernels::copy_now(&read, opened, sizeof(read));
      if (opened != mine.at(0)) kernels::close_shared(name, opened);
    }
    sees.push_back(read == word ? 1 : 0);
  }
  comm::barrier(ranks);  // until then others read
  return sees;
}

}  // namespace

int ranks_in_reach(comm::Communicator& ranks, int per_machine) {
  const std::vector<char> sees = comm::gathered(ranks, seen_by_this(ranks));
  const int world_size = ranks.world_size();
  for (const int block : {world_size, per_machine}) {
    if (world_size % block != 0) continue;
    bool all = true;
    for (int from = 0; from < world_size; ++from) {
      for (int to = from / block * block; to < (from / block + 1) * block; ++to) {
        all = all && sees[static_cast<std::size_t>(from) * world_size + to] != 0;
      }
    }
    if (all) return block;
  }
  return 1;
}

// Threads of this process write each other's memory by its own address, so none gives it back before all have ended
// what was under way. What a process has opened stays while it does, whatever becomes of its owner.
struct PeerCopies::Household {
  std::mutex mutex;
  std::condition_variable changed;
  int members = 0;

  // Of those with the same key, which is 0 in no set.
  static std::shared_ptr<Household> join(std::uint64_t key) {
    static std::mutex of_all;
    static std::map<std::uint64_t, std::weak_ptr<Household>> all;
    const std::lock_guard lock(of_all);
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    std::shared_ptr<Household> joined = all[key].lock();
    if (joined == nullptr) all[key] = joined = std::make_shared<Household>();
    const std::lock_guard count(joined->mutex);
    ++joined->members;
    return joined;
  }
  void leave(bool waits) {
    std::unique_lock lock(mutex);
    --members;
    changed.notify_all();
    if (waits) changed.wait_for(lock, kLongest, [this] { return members == 0; });
  }
};

PeerCopies::PeerCopies(comm::Communicator& ranks, std::vector<const Memory*> targets)
    : rank_(ranks.rank()),
      world_size_(ranks.world_size()),
      targets_(std::move(targets)),
      flags_(2 * world_size_ * static_cast<std::int64_t>(sizeof(std::uint32_t)), MemoryKind::device) {
  targets_.push_back(&flags_);
  std::vector<kernels::SharedMemory> names;
  for (const Memory* memory : targets_) {
    names.push_back(memory->bytes() > 0 ? kernels::share(memory->at(0)) : kernels::SharedMemory{});
  }
  const std::vector<kernels::SharedMemory> all = comm::gathered(ranks, names);
  char missing = 0;
  for (int peer = 0; peer < world_size_; ++peer) {
    const auto begin = all.begin() + peer * std::ssize(names);
    Peer& known = peers_.emplace_back(Peer{{begin, begin + std::ssize(names)}, {}});
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool opens = peer != rank_ && targets_[i]->bytes() > 0;
      known.opened.push_back(opens ? kernels::open_shared(known.names[i]) : nullptr);
      if (opens && known.opened.back() == nullptr) missing = 1;
    }
  }
  household_ =
      Household::join(peers_[0].names.back().process ^ reinterpret_cast<std::uintptr_t>(peers_[0].names.back().memory));
  try {
    // After which every rank may write here.
    missing = std::ranges::max(comm::gathered(ranks, missing));
  } catch (...) {
    household_->leave(false);
    throw;
  }
  if (missing == 0) return;
  household_->leave(false);
  throw Error(3066, "rank " + std::to_string(rank_),
              "devices of this machine do not reach each other's memory, although they seemed to",
              "distributed.same_host_memory=false does without it: NCCL");
}

PeerCopies::~PeerCopies() {
  household_->leave(is_aborted_ || std::uncaught_exceptions() > 0);
  for (const Peer& peer : peers_) {
    for (std::size_t i = 0; i < peer.names.size(); ++i) kernels::close_shared(peer.names[i], peer.opened[i]);
  }
}

std::byte* PeerCopies::at_peer(int peer, const std::byte* place) const {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const std::byte* const begin = targets_[i]->at(0);
    if (place < begin || place >= begin + targets_[i]->bytes()) continue;
    return peers_[static_cast<std::size_t>(peer)].opened[i] + (place - begin);
  }
  TRIREME_CHECK(false, "what peers write into is not among the targets");
}

const std::uint32_t* PeerCopies::flag(int index) const {
  return reinterpret_cast<const std::uint32_t*>(flags_.at(0)) + index;
}
std::uint32_t* PeerCopies::flag_at(int peer, int index) const {
  return reinterpret_cast<std::uint32_t*>(peers_[static_cast<std::size_t>(peer)].opened.back()) + index;
}

// Every flag that is raised is awaited: when this has completed nobody writes into this rank's memory.
void PeerCopies::exchange(std::span<const Piece> sends, std::span<const Piece> receives) {
  if (is_aborted_) throw Error(1102, "rank " + std::to_string(rank_), "communication of devices was broken off");
  ++sequence_;
  for (const Piece& piece : receives) {
    if (piece.bytes > 0) kernels::raise_flag(flag_at(piece.peer, rank_), sequence_);
  }
  for (const Piece& piece : sends) {
    if (piece.bytes == 0) continue;
    kernels::await_flag(flag(piece.peer), sequence_);
    kernels::copy(at_peer(piece.peer, piece.there), piece.data, piece.bytes);
    kernels::raise_flag(flag_at(piece.peer, world_size_ + rank_), sequence_);
  }
  for (const Piece& piece : receives) {
    if (piece.bytes > 0) kernels::await_flag(flag(world_size_ + piece.peer), sequence_);
  }
  last_.record();
}

void PeerCopies::abort() noexcept {
  if (is_aborted_) return;
  is_aborted_ = true;
  const std::vector<std::uint32_t> raised(static_cast<std::size_t>(2 * world_size_), sequence_ + kFarAhead);
  const auto end = std::chrono::steady_clock::now() + kLongest;
  try {
    // Again and again: peers that are alive lower what they raise.
    while (!last_.is_reached() && std::chrono::steady_clock::now() < end) {
      kernels::copy_now(flags_.at(0), raised.data(), flags_.bytes());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  } catch (const std::exception&) {  // of a device that has failed, which has ended it
  }
}

}  // namespace trireme::engine
