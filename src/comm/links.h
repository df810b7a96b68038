// One rank's ends of the rings of its host: the transfers posted on them, and how they move. Only for same_host.cpp.
//
// All calls come from one thread at a time but close(), which may come from any.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/ring.h"
#include "comm/shared_memory.h"

namespace trireme::comm {

// A transfer; lives in its Transfer object, the link only points to it.
struct PostedBytes {
  std::byte* bytes;  // only read from, where it is sent
  std::size_t size;
  std::size_t moved = 0;
  bool has_begun = false;  // its size has gone before it
  bool done = false;
};

// Where things lie in a rank's block: its nonce, its doorbell, and a ring for each other rank of the host to write to.
class BlockLayout {
 public:
  BlockLayout(std::size_t capacity, int ranks_of_host);
  std::size_t bytes() const { return kRingsBegin + stride_ * static_cast<std::size_t>(ranks_ - 1); }
  void prepare(std::span<std::byte> block, const std::string& nonce) const;
  Doorbell& doorbell(std::span<std::byte> block) const;
  // owner and writer: places among the ranks of the host.
  std::span<std::byte> ring(std::span<std::byte> block, int owner, int writer) const;

 private:
  static constexpr std::size_t kBellBegin = 64, kRingsBegin = 256;
  std::size_t capacity_, stride_;
  int ranks_;
};

class Links {
 public:
  Links(int rank, std::chrono::milliseconds silence, SharedBlock own, const BlockLayout& layout);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links();

  void add(Neighbour neighbour, int peers_place, int own_place);  // before any transfer
  bool reaches(int peer) const { return find(peer) != nullptr; }

  // Posting throws what is known to be wrong with the peer. `posted` stays where it is until it is done or forgotten.
  void post_send(int peer, PostedBytes& posted);
  void post_receive(int peer, PostedBytes& posted);
  void wait(int peer, const PostedBytes& posted);
  // A transfer that nobody waited for: what follows could not be matched, so all links are closed.
  void forget(int peer, const PostedBytes& posted);

  // While ended() is false: moves what is posted, and sleeps when there is nothing to move. Throws nothing: what is
  // wrong with a peer is for those who wait for it.
  template <class Ended>
  void move_until(Ended ended) {
    while (!ended()) {
      const std::uint32_t seen = bell_.rings();
      if (!move_all() && !ended()) rest(seen);
    }
  }
  void ring_own_bell() { bell_.ring(); }  // from any thread: ended() is to be asked again
  bool has_pending() const;

  void close(const std::string& reason) noexcept;  // idempotent; all calls throw TR1102 from now on, the peers' TR1101
  void throw_if_closed() const;
  void throw_if_deserted();  // TR1101 where a peer's process has ended without close(); looks at most once in a while

 private:
  struct Link;
  Link* find(int peer) const;
  Link& open_link(int peer);  // throws if it is not
  bool move_all();            // true: some bytes moved
  bool progress(Link& link);
  bool move_sends(Link& link);
  bool move_receives(Link& link);
  Error lost(const Link& link, Closed why) const;
  void fail(Link& link, const Error& error);
  void rest(std::uint32_t seen);
  bool is_time_to_look();
  bool look_for_the_lost();  // true: found one
  std::string place() const { return "rank " + std::to_string(rank_); }

  const int rank_;
  const std::chrono::milliseconds silence_;
  const BlockLayout layout_;
  SharedBlock own_;
  Doorbell& bell_;
  std::vector<std::unique_ptr<Link>> links_;
  std::chrono::steady_clock::time_point next_look_{};
  std::atomic<bool> closed_ = false;
  mutable std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace trireme::comm
