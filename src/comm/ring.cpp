#include "comm/ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/error.h"

namespace trireme::comm {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free &&
                  sizeof(std::atomic<std::uint32_t>) == 4,
              "atomics in shared memory work between processes, and as futex words, only without locks");

// Not the private kind: the word is shared between processes.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

RingState* state_of(std::span<std::byte> memory) {
  TRIREME_CHECK(memory.size() > sizeof(RingState), "a ring needs room for its state and its bytes");
  return reinterpret_cast<RingState*>(memory.data());
}

// How far the writer is ahead of the reader.
std::size_t checked_distance(std::uint64_t written, std::uint64_t read, std::size_t capacity,
                             const std::string& place) {
  const std::uint64_t distance = written - read;
  if (distance <= capacity) return static_cast<std::size_t>(distance);
  throw Error(1116, place,
              "shared memory is damaged: " + std::to_string(written) + " bytes written and " + std::to_string(read) +
                  " read in a ring of " + std::to_string(capacity),
              "distributed.same_host_memory=false does without it");
}

// Calls copy(part of the ring, part of the bytes) for the one or two pieces in which they lie at a position.
template <class Bytes, class Copy>
void in_pieces(std::span<std::byte> ring, std::uint64_t position, Bytes bytes, Copy copy) {
  const std::size_t begin = static_cast<std::size_t>(position % ring.size());
  const std::size_t first = std::min(bytes.size(), ring.size() - begin);
  if (first > 0) copy(ring.data() + begin, bytes.first(first));
  if (first < bytes.size()) copy(ring.data(), bytes.subspan(first));
}

}  // namespace

// A ring either comes before the kernel compares the word, so that there is no sleep, or finds sleeping_ set.
void Doorbell::sleep(std::uint32_t seen, std::chrono::milliseconds limit) {
  const timespec time{.tv_sec = static_cast<std::time_t>(limit.count() / 1000),
                      .tv_nsec = static_cast<long>(limit.count() % 1000) * 1'000'000};
  sleeping_.store(1, std::memory_order_seq_cst);
  futex(rings_, FUTEX_WAIT, seen, &time);
  sleeping_.store(0, std::memory_order_relaxed);
}

void Doorbell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  // Only who sleeps clears it: cleared here it could be that of the next sleep, which the next ring would then miss.
  if (sleeping_.load(std::memory_order_seq_cst) != 0) futex(rings_, FUTEX_WAKE, 1, nullptr);
}

RingWriter::RingWriter(std::span<std::byte> memory, std::string place)
    : state_(state_of(memory)), bytes_(memory.subspan(sizeof(RingState))), place_(std::move(place)) {}

std::size_t RingWriter::room() const {
  return bytes_.size() -
         checked_distance(position_, state_->read.load(std::memory_order_seq_cst), bytes_.size(), place_);
}

void RingWriter::write(std::span<const std::byte> bytes) {
  in_pieces(bytes_, position_, bytes,
            [](std::byte* ring, std::span<const std::byte> piece) { std::memcpy(ring, piece.data(), piece.size()); });
  position_ += bytes.size();
}

void RingWriter::publish() {
  state_->written.store(position_, std::memory_order_release);
}

void RingWriter::close(Closed why) {
  Closed open = Closed::no;
  state_->closed.compare_exchange_strong(open, why, std::memory_order_seq_cst);
}

RingReader::RingReader(std::span<std::byte> memory, std::string place)
    : state_(state_of(memory)), bytes_(memory.subspan(sizeof(RingState))), place_(std::move(place)) {}

std::size_t RingReader::available() const {
  return checked_distance(state_->written.load(std::memory_order_acquire), position_, bytes_.size(), place_);
}

void RingReader::read(std::span<std::byte> bytes) {
  in_pieces(bytes_, position_, bytes,
            [](const std::byte* ring, std::span<std::byte> piece) { std::memcpy(piece.data(), ring, piece.size()); });
  position_ += bytes.size();
}

bool RingReader::release() {
  state_->read.store(position_, std::memory_order_seq_cst);
  return state_->wants_room.load(std::memory_order_seq_cst) != 0 &&
         state_->wants_room.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace trireme::comm
