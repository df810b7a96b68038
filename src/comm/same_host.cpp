#include "comm/same_host.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"
#include "comm/links.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using Members = std::vector<std::pair<int, HostWord>>;

constexpr std::size_t kMostRingBytes = (std::size_t{1} << 20) + 4096;
constexpr std::size_t kMostHostBytes = std::size_t{32} << 20;
constexpr std::size_t kMostMembers = 64;  // rings of more would be too small to be worth it
constexpr milliseconds kHandOverLimit{3000};

// Waits for transfers of the inner communicator on a thread of its own, so that the rings go on meanwhile.
class WaitBeside {
 public:
  explicit WaitBeside(std::function<void()> on_end) : on_end_(std::move(on_end)) {}
  WaitBeside(const WaitBeside&) = delete;
  WaitBeside& operator=(const WaitBeside&) = delete;
  ~WaitBeside() {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // finish() must follow once ended(); the transfer lives until then.
  void begin(Transfer& transfer) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    transfer_ = &transfer;
    ended_ = false;
    changed_.notify_all();
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  void finish() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return leaving_ || transfer_ != nullptr; });
      if (leaving_) return;
      Transfer& transfer = *std::exchange(transfer_, nullptr);
      lock.unlock();
      std::exception_ptr error;
      try {
        transfer.wait();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      ended_ = true;
      on_end_();
    }
  }

  const std::function<void()> on_end_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Transfer* transfer_ = nullptr;
  bool ended_ = true, leaving_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

// Shared by the communicator and its transfers.
struct Shared {
  Shared(int rank, milliseconds silence, SharedBlock own, const BlockLayout& layout)
      : links(rank, silence, std::move(own), layout), beside([this] { links.ring_own_bell(); }) {}

  // While this rank waited for a peer of another host alone, one of its own host might wait for the ring to move, and
  // the two for each other through a third.
  void wait_inner(Transfer& transfer) {
    if (!links.has_pending()) return transfer.wait();
    beside.begin(transfer);
    links.move_until([this] { return beside.ended(); });
    beside.finish();
  }

  Links links;
  WaitBeside beside;
};

class RingTransfer final : public Transfer {
 public:
  RingTransfer(std::shared_ptr<Shared> shared, int peer, std::byte* bytes, std::size_t size)
      : shared_(std::move(shared)), peer_(peer), posted_{bytes, size} {}
  RingTransfer(const RingTransfer&) = delete;
  RingTransfer& operator=(const RingTransfer&) = delete;
  ~RingTransfer() override {
    if (!posted_.done) shared_->links.forget(peer_, posted_);
  }
  void wait() override { shared_->links.wait(peer_, posted_); }
  PostedBytes& posted() { return posted_; }

 private:
  std::shared_ptr<Shared> shared_;
  int peer_;
  PostedBytes posted_;
};

class InnerTransfer final : public Transfer {
 public:
  InnerTransfer(std::shared_ptr<Shared> shared, std::unique_ptr<Transfer> inner)
      : shared_(std::move(shared)), inner_(std::move(inner)) {}
  void wait() override { shared_->wait_inner(*inner_); }

 private:
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Transfer> inner_;
};

class SameHostCommunicator final : public Communicator {
 public:
  SameHostCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Shared> shared)
      : inner_(std::move(inner)), shared_(std::move(shared)) {}
  SameHostCommunicator(const SameHostCommunicator&) = delete;
  SameHostCommunicator& operator=(const SameHostCommunicator&) = delete;
  ~SameHostCommunicator() override { shared_->links.close("rank " + std::to_string(rank()) + " left"); }

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> bytes, int to) override {
    check_peer(to);
    if (bytes.empty()) return std::make_unique<EmptyTransfer>();
    shared_->links.throw_if_closed();
    if (!shared_->links.reaches(to)) return std::make_unique<InnerTransfer>(shared_, inner_->send(bytes, to));
    // Only read from: links never write to what is sent.
    auto transfer = ring_transfer(const_cast<std::byte*>(bytes.data()), bytes.size(), to);
    shared_->links.post_send(to, transfer->posted());
    return transfer;
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> bytes, int from) override {
    check_peer(from);
    if (bytes.empty()) return std::make_unique<EmptyTransfer>();
    shared_->links.throw_if_closed();
    if (!shared_->links.reaches(from)) return std::make_unique<InnerTransfer>(shared_, inner_->receive(bytes, from));
    auto transfer = ring_transfer(bytes.data(), bytes.size(), from);
    shared_->links.post_receive(from, transfer->posted());
    return transfer;
  }

  void abort(const std::string& reason) noexcept override {
    shared_->links.close(reason);
    inner_->abort(reason);
  }
  void throw_if_broken() const override {
    shared_->links.throw_if_closed();
    shared_->links.throw_if_deserted();
  }

 private:
  void check_peer(int peer) const {
    TRIREME_CHECK(peer >= 0 && peer < world_size() && peer != rank(), "no such peer: rank " + std::to_string(peer));
  }
  std::unique_ptr<RingTransfer> ring_transfer(std::byte* bytes, std::size_t size, int peer) {
    return std::make_unique<RingTransfer>(shared_, peer, bytes, size);
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<Shared> shared_;
};

// The ranks that can share memory with this one, itself among them, and those that are on this host but cannot.
struct OfThisHost {
  Members members;
  std::vector<int> apart;
};

OfThisHost of_this_host(const HostWord& own, const std::vector<std::string>& offers) {
  OfThisHost found;
  for (int rank = 0; rank < std::ssize(offers); ++rank) {
    const auto word = parse_host_word(offers[static_cast<std::size_t>(rank)]);
    if (!word || word->host != own.host) continue;
    if (word->network == own.network) {
      found.members.emplace_back(rank, *word);
    } else {
      found.apart.push_back(rank);
    }
  }
  if (found.members.size() <= kMostMembers) return found;
  for (const auto& [rank, word] : std::exchange(found.members, {})) found.apart.push_back(rank);
  return found;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
  return text;
}

bool names(const std::string& list, int rank) {
  std::istringstream ranks(list);
  for (int one = 0; ranks >> one;) {
    if (one == rank) return true;
  }
  return false;
}

std::optional<SharedBlock> try_new_block(const MemoryOffer& offer, const BlockLayout& layout) {
  try {
    if (failpoint("comm.share_memory", offer.rank()))
      throw Error(kNoSharedMemory, "shared memory", "spoilt by a failpoint");
    SharedBlock block(layout.bytes());
    layout.prepare(block.bytes(), offer.word().nonce);
    return block;
  } catch (const Error& error) {
    if (error.code() != kNoSharedMemory) throw;
    return std::nullopt;
  }
}

// Those that have mapped this rank's block too.
std::vector<Neighbour> meet_neighbours(const MemoryOffer& offer, const Members& members, const SharedBlock* own,
                                       const TellRanks& tell) {
  std::vector<Neighbour> mapped;
  try {
    mapped = exchange_blocks(offer, members, own, kHandOverLimit);
  } catch (const Error& error) {
    if (error.code() != kNoSharedMemory) throw;
  }
  std::vector<int> ranks, mine;
  for (const auto& [rank, word] : members) ranks.push_back(rank);
  for (const Neighbour& neighbour : mapped) mine.push_back(neighbour.rank);
  const std::vector<std::string> lists = tell(list_of(mine), ranks);
  std::erase_if(mapped, [&](const Neighbour& neighbour) {
    const auto place = std::find(ranks.begin(), ranks.end(), neighbour.rank) - ranks.begin();
    return !names(lists[static_cast<std::size_t>(place)], offer.rank());
  });
  return mapped;
}

int place_of(const Members& members, int rank) {
  const auto found = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == rank; });
  return static_cast<int>(found - members.begin());
}

std::string words_of(int rank, std::size_t shared, int world_size, const std::string& inner_name) {
  const auto others = static_cast<std::size_t>(world_size - 1);
  const std::string begin = "rank " + std::to_string(rank) + " reaches ";
  if (shared == others) return begin + "all other ranks through shared memory";
  if (shared == 0) return begin + "the other ranks through " + inner_name;
  return begin + std::to_string(shared) + " of " + std::to_string(others) +
         " other ranks through shared memory, the rest through " + inner_name;
}

}  // namespace

std::size_t ring_capacity(int ranks_of_host) {
  const std::size_t rings = static_cast<std::size_t>(ranks_of_host) * static_cast<std::size_t>(ranks_of_host - 1);
  return std::min(kMostRingBytes, kMostHostBytes / rings) / alignof(RingState) * alignof(RingState);
}

Transport share_memory(std::unique_ptr<Communicator> inner, const std::string& inner_name,
                       const std::optional<MemoryOffer>& offer, const std::vector<std::string>& offers,
                       const TellRanks& tell, milliseconds silence) {
  const int rank = inner->rank(), world_size = inner->world_size();
  OfThisHost found;
  if (offer) found = of_this_host(offer->word(), offers);
  const Members& members = found.members;
  std::vector<Neighbour> neighbours;
  std::shared_ptr<Shared> shared;
  if (members.size() > 1) {
    const int ranks_of_host = static_cast<int>(members.size());
    const BlockLayout layout(ring_capacity(ranks_of_host), ranks_of_host);
    std::optional<SharedBlock> own = try_new_block(*offer, layout);
    neighbours = meet_neighbours(*offer, members, own ? &*own : nullptr, tell);
    for (const auto& member : members) {
      const int peer = member.first;
      const bool mapped =
          std::any_of(neighbours.begin(), neighbours.end(), [peer](const auto& n) { return n.rank == peer; });
      if (peer != rank && !mapped) found.apart.push_back(peer);
    }
    if (!neighbours.empty()) {
      own->close_descriptor();
      shared = std::make_shared<Shared>(rank, silence, std::move(*own), layout);
    }
  }
  Transport transport{.words = words_of(rank, neighbours.size(), world_size, inner_name)};
  if (!found.apart.empty()) {
    transport.notice = "rank " + std::to_string(rank) + " cannot share memory with rank " + list_of(found.apart) +
                       ", though it is on the same machine: slower, " + inner_name + " serves instead";
  }
  for (Neighbour& neighbour : neighbours) {
    const int place = place_of(members, neighbour.rank);
    shared->links.add(std::move(neighbour), place, place_of(members, rank));
  }
  transport.comm = std::move(inner);
  if (shared) transport.comm = std::make_unique<SameHostCommunicator>(std::move(transport.comm), std::move(shared));
  return transport;
}

}  // namespace trireme::comm
