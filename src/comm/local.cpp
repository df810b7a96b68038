// Ranks as threads of one process: a mailbox for each (from, to) pair, in which posted sends and receives meet.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"

namespace trireme::comm {
namespace {

enum Side : std::uint8_t { kSender, kReceiver };

// A posted transfer; lives in its Transfer object, the mailbox only points to it.
struct Posted {
  std::byte* bytes;  // read only on the sender's side
  std::size_t size;
  bool done = false;
  bool size_differs = false;
};

struct Closed {
  int code;
  std::string message;
};

// The transfers from one rank to another. Whoever posts second copies, under the lock: only these two ranks use it.
class Mailbox {
 public:
  void post(Side side, Posted& posted, const std::string& place) {
    const std::lock_guard lock(mutex_);
    if (closed_[side]) throw Error(closed_[side]->code, place, closed_[side]->message);
    queue_[side].push_back(&posted);
    if (queue_[1 - side].empty()) return;
    Posted& from = take(kSender);
    Posted& to = take(kReceiver);
    if (from.size == to.size) {
      std::memcpy(to.bytes, from.bytes, from.size);
    } else {
      from.size_differs = to.size_differs = true;
    }
    from.done = to.done = true;
    wake_.notify_all();
  }

  void wait(Side side, Posted& posted, const std::string& place) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return posted.done || closed_[side]; });
    if (!posted.done) throw Error(closed_[side]->code, place, closed_[side]->message);
    if (posted.size_differs) {
      throw Error(1103, place,
                  "the two ends of a transfer differ in size; this end has " + std::to_string(posted.size) + " bytes",
                  "ranks must issue the same collectives with the same sizes in the same order");
    }
  }

  // A transfer that nobody waited for: what follows can no longer be matched, so the pair is closed.
  void forget(Side side, Posted& posted, int rank) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(queue_[side].begin(), queue_[side].end(), &posted);
    if (found == queue_[side].end()) return;
    queue_[side].erase(found);
    const std::string message = "rank " + std::to_string(rank) + " dropped a transfer that was under way";
    close_locked(side, {1101, message});
    close_locked(other(side), {1101, message});
  }

  // An abort (TR1102) of one's own replaces an earlier word about the peer.
  void close(Side side, const Closed& own, const Closed& peers) {
    const std::lock_guard lock(mutex_);
    close_locked(side, own);
    close_locked(other(side), peers);
  }

 private:
  static Side other(Side side) { return side == kSender ? kReceiver : kSender; }

  Posted& take(Side side) {
    Posted& first = *queue_[side].front();
    queue_[side].pop_front();
    return first;
  }

  void close_locked(Side side, const Closed& closed) {
    if (!closed_[side] || (closed.code == 1102 && closed_[side]->code != 1102)) closed_[side] = closed;
    wake_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Posted*> queue_[2];
  std::optional<Closed> closed_[2];
};

struct World {
  explicit World(int size) : world_size(size), mailboxes(static_cast<std::size_t>(size) * size) {}
  Mailbox& mailbox(int from, int to) { return mailboxes[static_cast<std::size_t>(from) * world_size + to]; }

  // Closes every pair of this rank: own calls throw `own`, the peers' calls that need this rank throw `peers`.
  void close(int rank, const Closed& own, const Closed& peers) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer == rank) continue;
      mailbox(rank, peer).close(kSender, own, peers);
      mailbox(peer, rank).close(kReceiver, own, peers);
    }
  }

  // Remembers that this rank broke off, and why.
  void break_off(int rank, const Closed& own, const Closed& peers) {
    {
      const std::lock_guard lock(mutex);
      if (!broken_off) broken_off = BrokenOff{rank, own, peers};
    }
    close(rank, own, peers);
  }

  const int world_size;
  std::vector<Mailbox> mailboxes;
  struct BrokenOff {
    int rank;
    Closed own, peers;
  };
  mutable std::mutex mutex;
  std::optional<BrokenOff> broken_off;  // the first
};

std::string place_of(int rank) {
  return "rank " + std::to_string(rank);
}

class LocalTransfer final : public Transfer {
 public:
  LocalTransfer(std::shared_ptr<World> world, Mailbox& mailbox, Side side, int rank, std::byte* bytes, std::size_t size)
      : world_(std::move(world)), mailbox_(mailbox), side_(side), rank_(rank), posted_{bytes, size} {
    mailbox_.post(side_, posted_, place_of(rank_));
  }
  LocalTransfer(const LocalTransfer&) = delete;
  LocalTransfer& operator=(const LocalTransfer&) = delete;
  ~LocalTransfer() override { mailbox_.forget(side_, posted_, rank_); }
  void wait() override { mailbox_.wait(side_, posted_, place_of(rank_)); }

 private:
  std::shared_ptr<World> world_;
  Mailbox& mailbox_;
  Side side_;
  int rank_;
  Posted posted_;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  LocalCommunicator(const LocalCommunicator&) = delete;
  LocalCommunicator& operator=(const LocalCommunicator&) = delete;
  ~LocalCommunicator() override {
    const std::string message = place_of(rank_) + " left";
    world_->close(rank_, {1102, message}, {1101, message});
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_->world_size; }

  std::unique_ptr<Transfer> send(std::span<const std::byte> bytes, int to) override {
    check_peer(to);
    if (bytes.empty()) return std::make_unique<EmptyTransfer>();
    // Only read from: the mailbox never writes to a sender's bytes.
    auto* data = const_cast<std::byte*>(bytes.data());
    const std::lock_guard lock(closing_);
    return std::make_unique<LocalTransfer>(world_, world_->mailbox(rank_, to), kSender, rank_, data, bytes.size());
  }

  std::unique_ptr<Transfer> receive(std::span<std::byte> bytes, int from) override {
    check_peer(from);
    if (bytes.empty()) return std::make_unique<EmptyTransfer>();
    const std::lock_guard lock(closing_);
    return std::make_unique<LocalTransfer>(world_, world_->mailbox(from, rank_), kReceiver, rank_, bytes.data(),
                                           bytes.size());
  }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(closing_);
    world_->break_off(rank_, {1102, "communication was broken off: " + reason},
                      {1101, place_of(rank_) + " broke off: " + reason});
  }
  void throw_if_broken() const override {
    const std::lock_guard lock(world_->mutex);
    if (!world_->broken_off) return;
    const auto& [rank, own, peers] = *world_->broken_off;
    const Closed& mine = rank == rank_ ? own : peers;
    throw Error(mine.code, place_of(rank_), mine.message);
  }

 private:
  void check_peer(int peer) const {
    TRIREME_CHECK(peer >= 0 && peer < world_->world_size && peer != rank_,
                  "no such peer: rank " + std::to_string(peer));
  }

  std::shared_ptr<World> world_;
  int rank_;
  std::mutex closing_;  // a rank that the first closed pair sets free must not still find another one open
};

}  // namespace

std::unique_ptr<Communicator> make_single() {
  return std::move(make_local(1).front());
}

std::vector<std::unique_ptr<Communicator>> make_local(int world_size) {
  TRIREME_CHECK(world_size >= 1, "a world has at least one rank");
  const auto world = std::make_shared<World>(world_size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back(std::make_unique<LocalCommunicator>(world, rank));
  return ranks;
}

}  // namespace trireme::comm
