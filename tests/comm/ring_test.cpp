// Rings whose ends map the memory at different addresses, as two processes do.
#include "comm/ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "support/expect_error.h"
#include "support/seed.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using testing::expect_error;

class TwoMaps {
 public:
  explicit TwoMaps(std::size_t size) : size_(size) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
    for (void*& map : maps_) map = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
  }
  TwoMaps(const TwoMaps&) = delete;
  TwoMaps& operator=(const TwoMaps&) = delete;
  ~TwoMaps() {
    for (void* map : maps_) ::munmap(map, size_);
  }
  std::span<std::byte> operator[](int i) const { return {static_cast<std::byte*>(maps_[i]), size_}; }

 private:
  std::size_t size_;
  void* maps_[2] = {};
};

TEST(Ring, CarriesAStreamOverAnyCapacityInAnyPieces) {
  const unsigned seed = testing::test_seed();
  std::printf("seed %u\n", seed);
  for (const std::size_t capacity : {1, 2, 63, 64, 1000}) {
    const std::size_t total = 300 * capacity;  // each capacity's worth may cost a change of threads
    const TwoMaps memory(ring_bytes(capacity));
    RingWriter writer(memory[0], "writer");
    std::thread writing([&] {
      std::mt19937 random(seed);
      std::mt19937 values(1);
      for (std::size_t written = 0; written < total;) {
        const std::size_t count = std::min(writer.room(), std::size_t{1} + random() % (2 * capacity));
        std::vector<std::byte> bytes(count);
        for (std::byte& byte : bytes) byte = std::byte(values());
        writer.write(bytes);
        writer.publish();
        written += count;
        if (count == 0) std::this_thread::yield();
      }
      writer.close(Closed::left);
    });
    RingReader reader(memory[1], "reader");
    std::mt19937 random(seed + 1), values(1);
    std::size_t wrong = 0, read = 0;
    for (;;) {
      const bool closed = reader.closed() != Closed::no;
      const std::size_t count = std::min(reader.available(), std::size_t{1} + random() % capacity);
      if (closed && count == 0) break;
      std::vector<std::byte> bytes(count);
      reader.read(bytes);
      reader.release();
      wrong += std::count_if(bytes.begin(), bytes.end(), [&](std::byte byte) { return byte != std::byte(values()); });
      read += count;
      if (count == 0) std::this_thread::yield();
    }
    writing.join();
    EXPECT_EQ(wrong, 0u) << "capacity " << capacity;
    EXPECT_GE(read, total);
  }
}

TEST(Ring, ImpossiblePositionsAreAnErrorAndNoAccess) {
  const TwoMaps memory(ring_bytes(100));
  RingWriter writer(memory[0], "rank 0");
  RingReader reader(memory[1], "rank 1");
  auto& state = *reinterpret_cast<RingState*>(memory[0].data());
  for (const std::uint64_t position : {std::uint64_t{101}, std::uint64_t{1} << 40}) {
    state.written = position;
    EXPECT_NE(expect_error(1116, [&] { reader.available(); }).find("rank 1"), std::string::npos);
    state.written = 0;
    state.read = position;
    EXPECT_NE(expect_error(1116, [&] { writer.room(); }).find("rank 0"), std::string::npos);
    state.read = 0;
  }
  EXPECT_EQ(reader.available(), 0u);
  EXPECT_EQ(writer.room(), 100u);
}

TEST(Ring, AWriterThatWantsRoomIsToldOnce) {
  const TwoMaps memory(ring_bytes(8));
  RingWriter writer(memory[0], "");
  RingReader reader(memory[1], "");
  std::byte bytes[8] = {};
  writer.write(bytes);
  writer.publish();
  reader.read(std::span(bytes).first(4));
  EXPECT_FALSE(reader.release());
  writer.want_room();
  reader.read(std::span(bytes).first(2));
  EXPECT_TRUE(reader.release());
  EXPECT_FALSE(reader.release());
  EXPECT_EQ(writer.room(), 6u);
}

// Whoever rings between the look at the bell and the sleep ends the sleep before it begins.
TEST(Doorbell, NoRingIsMissed) {
  const TwoMaps memory(sizeof(Doorbell));
  auto& here = *reinterpret_cast<Doorbell*>(memory[0].data());
  auto& there = *reinterpret_cast<Doorbell*>(memory[1].data());
  constexpr int kRings = 20'000;
  std::atomic<int> asked = 0, answered = 0;
  std::thread answering([&] {
    for (int i = 0; i < kRings; ++i) {
      while (asked.load() <= i) std::this_thread::yield();
      answered = i + 1;
      there.ring();
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRings; ++i) {
    asked = i + 1;
    for (;;) {
      const std::uint32_t seen = here.rings();
      if (answered.load() == i + 1) break;
      here.sleep(seen, milliseconds(30'000));
    }
  }
  answering.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(25'000));  // one missed ring is a sleep of 30 s
}

TEST(Doorbell, ASleepEndsAtItsLimit) {
  Doorbell bell;
  const auto begin = std::chrono::steady_clock::now();
  bell.sleep(bell.rings(), milliseconds(50));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(40));
}

}  // namespace
}  // namespace trireme::comm
