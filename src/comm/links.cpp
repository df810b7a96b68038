#include "comm/links.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using SizeWord = std::uint64_t;             // goes before each message, so that both ends see whether sizes match
constexpr milliseconds kLongestSleep{100};  // between looks at whether the peers still live

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

BlockLayout::BlockLayout(std::size_t capacity, int ranks_of_host)
    : capacity_(capacity), stride_(rounded_up(ring_bytes(capacity), alignof(RingState))), ranks_(ranks_of_host) {}

void BlockLayout::prepare(std::span<std::byte> block, const std::string& nonce) const {
  TRIREME_CHECK(block.size() == bytes() && nonce.size() <= kBellBegin, "a block of this layout");
  std::memcpy(block.data(), nonce.data(), nonce.size());
  new (block.data() + kBellBegin) Doorbell;
  for (int ring = 0; ring + 1 < ranks_; ++ring) {
    new (block.data() + kRingsBegin + stride_ * static_cast<std::size_t>(ring)) RingState;
  }
}

Doorbell& BlockLayout::doorbell(std::span<std::byte> block) const {
  return *reinterpret_cast<Doorbell*>(block.data() + kBellBegin);
}

std::span<std::byte> BlockLayout::ring(std::span<std::byte> block, int owner, int writer) const {
  const int index = writer - (writer > owner ? 1 : 0);
  return block.subspan(kRingsBegin + stride_ * static_cast<std::size_t>(index), ring_bytes(capacity_));
}

struct Links::Link {
  Neighbour peer;
  RingWriter out;
  RingReader in;
  Doorbell& bell;
  std::deque<PostedBytes*> sends = {}, receives = {};
  bool is_lost = false;  // its process is gone
  std::optional<Error> failure = std::nullopt;

  bool has_pending() const { return !failure && !(sends.empty() && receives.empty()); }
  Closed closed() const { return is_lost ? Closed::left : in.closed(); }
};

Links::Links(int rank, milliseconds silence, SharedBlock own, const BlockLayout& layout)
    : rank_(rank), silence_(silence), layout_(layout), own_(std::move(own)), bell_(layout.doorbell(own_.bytes())) {}

Links::~Links() = default;

void Links::add(Neighbour neighbour, int peers_place, int own_place) {
  const std::string between = place() + ", memory shared with rank " + std::to_string(neighbour.rank);
  const std::span<std::byte> theirs = neighbour.block.bytes();
  RingWriter out(layout_.ring(theirs, peers_place, own_place), between);
  RingReader in(layout_.ring(own_.bytes(), own_place, peers_place), between);
  Doorbell& bell = layout_.doorbell(theirs);
  const auto index = static_cast<std::size_t>(neighbour.rank);
  if (links_.size() <= index) links_.resize(index + 1);
  links_[index].reset(new Link{std::move(neighbour), std::move(out), std::move(in), bell});
}

Links::Link* Links::find(int peer) const {
  return static_cast<std::size_t>(peer) < links_.size() ? links_[static_cast<std::size_t>(peer)].get() : nullptr;
}

Links::Link& Links::open_link(int peer) {
  throw_if_closed();
  Link& link = *find(peer);
  if (link.failure) throw *link.failure;
  return link;
}

void Links::post_send(int peer, PostedBytes& posted) {
  Link& link = open_link(peer);
  if (const Closed closed = link.closed(); closed != Closed::no) {
    fail(link, lost(link, closed));
    throw *link.failure;
  }
  link.sends.push_back(&posted);
  progress(link);
}

void Links::post_receive(int peer, PostedBytes& posted) {
  open_link(peer).receives.push_back(&posted);
}

void Links::wait(int peer, const PostedBytes& posted) {
  if (posted.done) return;
  Link& link = *find(peer);
  const auto begin = steady_clock::now();
  move_until([&] {
    if (posted.done || link.failure || closed_.load(std::memory_order_acquire)) return true;
    if (steady_clock::now() - begin > silence_) {
      fail(link, Error(1101, place(), "rank " + std::to_string(peer) + " is silent"));
    }
    return link.failure.has_value();
  });
  if (posted.done) return;
  throw_if_closed();
  throw *link.failure;
}

void Links::forget(int peer, const PostedBytes& posted) {
  Link& link = *find(peer);
  std::erase(link.sends, &posted);
  std::erase(link.receives, &posted);
  if (!link.failure) close("a transfer with rank " + std::to_string(peer) + " was dropped while under way");
}

bool Links::has_pending() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) { return link && link->has_pending(); });
}

void Links::close(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(reason_mutex_);
    if (closed_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
    closed_.store(true, std::memory_order_release);
  }
  for (const auto& link : links_) {
    if (!link) continue;
    link->out.close(Closed::left);
    link->bell.ring();
    hang_up(link->peer.connection);
  }
  bell_.ring();
}

void Links::throw_if_closed() const {
  if (!closed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(reason_mutex_);
  throw Error(1102, place(), "communication was broken off: " + reason_);
}

bool Links::move_all() {
  if (closed_.load(std::memory_order_acquire)) return false;
  bool moved = false;
  for (const auto& link : links_) {
    if (link && link->has_pending()) moved |= progress(*link);
  }
  return moved;
}

bool Links::progress(Link& link) {
  try {
    const bool received = move_receives(link);  // first: what a peer had sent before it left is kept
    return move_sends(link) || received;
  } catch (const Error& error) {
    fail(link, error);
    return false;
  }
}

bool Links::move_sends(Link& link) {
  if (const Closed closed = link.closed(); closed != Closed::no && !link.sends.empty()) throw lost(link, closed);
  bool moved = false;
  std::size_t room = link.out.room();
  while (!link.sends.empty()) {
    PostedBytes& posted = *link.sends.front();
    const std::size_t needed = posted.has_begun ? 1 : sizeof(SizeWord) + 1;
    if (room < needed) {
      link.out.want_room();
      room = link.out.room();  // once more: what was read meanwhile rings no bell
      if (room < needed) break;
    }
    if (!posted.has_begun) {
      const SizeWord size = posted.size;
      link.out.write(std::as_bytes(std::span(&size, 1)));
      room -= sizeof size;
      posted.has_begun = true;
    }
    const std::size_t count = std::min(room, posted.size - posted.moved);
    link.out.write({posted.bytes + posted.moved, count});
    link.out.publish();
    posted.moved += count;
    room -= count;
    moved = true;
    if (posted.moved < posted.size) continue;
    posted.done = true;
    link.sends.pop_front();
  }
  if (moved) link.bell.ring();
  return moved;
}

bool Links::move_receives(Link& link) {
  const Closed closed = link.closed();  // before the last look at what it has written
  bool moved = false;
  while (!link.receives.empty()) {
    PostedBytes& posted = *link.receives.front();
    std::size_t available = link.in.available();
    if (available < (posted.has_begun ? 1 : sizeof(SizeWord) + 1)) break;
    if (!posted.has_begun) {
      SizeWord size = 0;
      link.in.read(std::as_writable_bytes(std::span(&size, 1)));
      available -= sizeof size;
      if (size != posted.size) {
        link.out.close(Closed::sizes_differ);
        link.bell.ring();
        throw lost(link, Closed::sizes_differ);
      }
      posted.has_begun = true;
    }
    const std::size_t count = std::min(available, posted.size - posted.moved);
    link.in.read({posted.bytes + posted.moved, count});
    posted.moved += count;
    moved = true;
    if (link.in.release()) link.bell.ring();
    if (posted.moved < posted.size) continue;
    posted.done = true;
    link.receives.pop_front();
  }
  if (closed != Closed::no && !link.receives.empty()) throw lost(link, closed);
  return moved;
}

void Links::fail(Link& link, const Error& error) {
  if (!link.failure) link.failure = error;
}

Error Links::lost(const Link& link, Closed why) const {
  if (why == Closed::sizes_differ) {
    return Error(1103, place(),
                 "the two ends of a transfer with rank " + std::to_string(link.peer.rank) + " differ in size",
                 "ranks must issue the same collectives with the same sizes in the same order");
  }
  return Error(1101, place(),
               "no connection to rank " + std::to_string(link.peer.rank) +
                   " any more: " + (link.is_lost ? "its process is gone" : "it has left or broken off"));
}

// What a lost peer had written is still looked at before its link fails.
bool Links::look_for_the_lost() {
  bool found = false;
  for (const auto& link : links_) {
    if (!link || !link->has_pending() || link->is_lost || !is_gone(link->peer.connection)) continue;
    link->is_lost = found = true;
  }
  return found;
}

bool Links::is_time_to_look() {
  const auto now = steady_clock::now();
  if (now < next_look_) return false;
  next_look_ = now + kLongestSleep;
  return true;
}

void Links::rest(std::uint32_t seen) {
  if (is_time_to_look() && look_for_the_lost()) return;
  bell_.sleep(seen, kLongestSleep);
}

// Who leaves says so in the ring before its connection ends.
void Links::throw_if_deserted() {
  if (!is_time_to_look()) return;
  for (const auto& link : links_) {
    if (!link) continue;
    if (is_gone(link->peer.connection) && link->in.closed() == Closed::no) link->is_lost = true;
    if (link->is_lost) throw lost(*link, Closed::left);
  }
}

}  // namespace trireme::comm
