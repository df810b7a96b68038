// A stream of bytes from one rank to another in memory that both have mapped, at the same address or not: one end
// writes, one reads, and neither ever waits here. Who has nothing to do sleeps at its Doorbell.
//
// Each end keeps its own position and reads only the other's, which it checks: Error TR1116 where it is impossible.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme::comm {

// Where one thread sleeps until another, of any process, has done something for it. In shared memory, zero at first.
class Doorbell {
 public:
  // To be read before looking for work: what is done after that ends the sleep.
  std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }
  void sleep(std::uint32_t seen, std::chrono::milliseconds limit);  // while rings() is `seen`, at most to the limit
  void ring();                                                      // a system call only where somebody sleeps

 private:
  alignas(64) std::atomic<std::uint32_t> rings_ = 0;
  std::atomic<std::uint32_t> sleeping_ = 0;
};

// Why a writer writes no more.
enum class Closed : std::uint32_t { no, left, sizes_differ };

// What the two ends tell each other, zero at first. The bytes follow it.
struct RingState {
  alignas(64) std::atomic<std::uint64_t> written = 0;  // bytes ever, told by the writer
  std::atomic<Closed> closed = Closed::no;
  alignas(64) std::atomic<std::uint64_t> read = 0;  // bytes ever, told by the reader
  alignas(64) std::atomic<std::uint32_t> wants_room = 0;
};

// The memory of a ring whose capacity is `capacity` bytes: RingState and the bytes.
constexpr std::size_t ring_bytes(std::size_t capacity) {
  return sizeof(RingState) + capacity;
}

// One end each. `memory` (ring_bytes of the capacity, aligned to 64, not owned) holds a RingState; place is for errors.
class RingWriter {
 public:
  RingWriter(std::span<std::byte> memory, std::string place);
  std::size_t room() const;                      // what can be written now
  void write(std::span<const std::byte> bytes);  // at most room(); the reader sees it after publish()
  void publish();
  // Asks the reader to ring when it has read something; room() must be looked at once more after that.
  void want_room() { state_->wants_room.store(1, std::memory_order_seq_cst); }
  void close(Closed why);  // from any thread; the first reason stays

 private:
  RingState* state_;
  std::span<std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::string place_;
};

class RingReader {
 public:
  RingReader(std::span<std::byte> memory, std::string place);
  std::size_t available() const;          // what can be read now
  void read(std::span<std::byte> bytes);  // at most available(); the writer may reuse it after release()
  bool release();                         // true: the writer waits for room
  // What was written before is available() after this was seen.
  Closed closed() const { return state_->closed.load(std::memory_order_acquire); }

 private:
  RingState* state_;
  std::span<std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::string place_;
};

}  // namespace trireme::comm
