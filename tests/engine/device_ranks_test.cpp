// Collectives of devices beside those of the host, whose bits they have. Ranks are threads, each with a device.
#include "engine/device_ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "comm/ranks.h"
#include "comm/reference.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "support/seed.h"

namespace trireme::engine {
namespace {

using Bytes = std::vector<std::byte>;
using comm::ReduceTypes;

class Devices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() < 2) GTEST_SKIP() << "these need two CUDA devices; here are " << kernels::num_devices();
  }
};

Memory on_device(const Bytes& bytes) {
  Memory memory(std::ssize(bytes), MemoryKind::device);
  kernels::copy_now(memory.at(0), bytes.data(), std::ssize(bytes));
  return memory;
}

Bytes to_host(const Memory& memory) {
  Bytes bytes(static_cast<std::size_t>(memory.bytes()));
  kernels::copy_now(bytes.data(), memory.at(0), memory.bytes());
  return bytes;
}

enum class By { copies, nccl };

// The stand-in for devices knows no NCCL.
std::vector<By> ways() {
  if (kernels::device_facts(0).name == "stand-in") return {By::copies};
  return {By::copies, By::nccl};
}

struct OfRank {
  comm::Communicator& comm;
  DeviceRanks& ranks;
  const kernels::Stream& stream;
  const Memory& target;  // that others may write
};

// On each of so many threads that play ranks, on a stream of its device.
void run_on_devices(By way, std::int64_t scratch_bytes, std::int64_t target_bytes,
                    const std::function<void(const OfRank&)>& body, int count = 2) {
  comm::run_ranks(count, [&](comm::Communicator& comm) {
    kernels::use_device(comm.rank());
    const kernels::Stream stream;
    const Memory scratch(scratch_bytes, MemoryKind::device), target(target_bytes, MemoryKind::device);
    if (way == By::copies) {
      ASSERT_EQ(ranks_in_reach(comm, count), count);
    }
    DeviceRanks ranks = way == By::copies ? DeviceRanks(comm, scratch, {&target}) : DeviceRanks(comm, scratch);
    const kernels::OnStream on(stream);
    body({comm, ranks, stream, target});
    stream.synchronize();
  });
}

// 17 million elements of fp32 do not arrive at once.
TEST_F(Devices, ReduceScatterHasTheBitsOfTheHost) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(seed);
  const auto compare = [&](By way, DType dtype, std::int64_t slice) {
    const ReduceTypes types{dtype, dtype, DType::f32};
    const std::int64_t scratch = device_scratch_bytes(types, slice, 2, 2);
    EXPECT_LE(scratch, std::int64_t{128} << 20);
    run_on_devices(way, scratch, 0, [&](const OfRank& of) {
      std::mt19937_64 random(seed + static_cast<unsigned>(of.comm.rank()));
      const bool is_large = slice > 1'000'000;
      for (const int participants : is_large ? std::vector{2} : std::vector{1, 2}) {
        for (const bool first : is_large ? std::vector{true} : std::vector{true, false}) {
          const Bytes slot = comm::random_slot(random, dtype, 2 * slice);
          Bytes sum = comm::random_slot(random, DType::f32, slice);
          const Memory slot_there = on_device(slot), sum_there = on_device(sum);
          const bool takes_part = of.comm.rank() < participants;
          ordered_reduce_scatter(of.ranks, takes_part ? slot_there.at(0) : nullptr, types, sum_there.at(0), slice,
                                 participants, first);
          of.stream.synchronize();
          comm::ordered_reduce_scatter(of.comm, takes_part ? slot.data() : nullptr, types, sum.data(), slice,
                                       participants, first);
          EXPECT_TRUE(to_host(sum_there) == sum) << to_string(dtype) << ", " << slice << ", " << participants;
        }
      }
    });
  };
  for (const By way : ways()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t slice : {0, 256, 70'001}) compare(way, dtype, slice);
    }
    compare(way, DType::f32, 17'000'000);
  }
}

TEST_F(Devices, SumsInPlaceHaveTheBitsOfTheHost) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(seed);
  const ReduceTypes sums;
  for (const By way : ways()) {
    for (const std::int64_t slice : {1, 256, 70'001}) {
      const std::int64_t bytes = 2 * slice * size_of(DType::f32);
      run_on_devices(way, device_scratch_bytes(sums, slice + 1, 2, 2), bytes, [&](const OfRank& of) {
        std::mt19937_64 random(seed + static_cast<unsigned>(of.comm.rank()));
        Bytes values = comm::random_slot(random, DType::f32, 2 * slice);
        kernels::copy_now(of.target.at(0), values.data(), bytes);
        ordered_scatter_sums(of.ranks, of.target.at(0), DType::f32, slice);
        of.stream.synchronize();
        comm::ordered_scatter_sums(of.comm, values.data(), DType::f32, slice);
        EXPECT_TRUE(to_host(of.target) == values) << slice;
        for (const std::int64_t numel : {2 * slice, 2 * slice - 1}) {
          ordered_all_reduce(of.ranks, of.target.at(0), DType::f32, numel);
          of.stream.synchronize();
          comm::ordered_all_reduce(of.comm, values.data(), DType::f32, numel);
          EXPECT_TRUE(to_host(of.target) == values) << slice << ", all-reduce of " << numel;
        }
      });
    }
  }
}

TEST_F(Devices, AllGatherPutsWhatRanksHaveInTheirOrder) {
  for (const By way : ways()) {
    run_on_devices(way, 0, 2000, [&](const OfRank& of) {
      const Bytes mine(1000, std::byte(of.comm.rank() + 1));
      Bytes expected(1000, std::byte{1});
      expected.resize(2000, std::byte{2});
      const Memory there = on_device(mine);
      of.ranks.all_gather(there.at(0), of.target.at(0), 1000);
      of.stream.synchronize();
      EXPECT_EQ(to_host(of.target), expected);
      of.ranks.all_gather(of.target.at(1000 * of.comm.rank()), of.target.at(0), 1000);  // in place
      of.stream.synchronize();
      EXPECT_EQ(to_host(of.target), expected);
    });
  }
}

// Of as many ranks as there are devices, many one after another, each reading what the one before wrote: nobody may
// write early.
TEST_F(Devices, CollectivesFollowEachOther) {
  const int count = std::min(kernels::num_devices(), 4);
  constexpr int kTimes = 50;
  constexpr std::int64_t kNumel = 1200;
  const std::int64_t bytes = kNumel * size_of(DType::f32), slice = kNumel / count;
  for (const By way : ways()) {
    const ReduceTypes sums;
    run_on_devices(
        way, device_scratch_bytes(sums, slice, count, count), bytes,
        [&](const OfRank& of) {
          const std::vector<float> ones(static_cast<std::size_t>(kNumel), 1.0f);
          kernels::copy_now(of.target.at(0), ones.data(), bytes);
          for (int i = 0; i < kTimes; ++i) {  // each multiplies by the number of ranks, which is taken back
            ordered_all_reduce(of.ranks, of.target.at(0), DType::f32, kNumel);
            auto* values = reinterpret_cast<float*>(of.target.at(0));
            kernels::table<float>().scale(kNumel, 1.0f / static_cast<float>(count), values);
          }
          of.stream.synchronize();
          const Bytes after = to_host(of.target);
          std::vector<float> values(ones.size());
          std::memcpy(values.data(), after.data(), after.size());
          for (const float value : values) ASSERT_NEAR(value, 1.0f, 1e-5);
        },
        count);
  }
}

// A stream that waits for a peer which does not come is free again, and of use to others.
TEST_F(Devices, AnAbortFreesTheStream) {
  for (const By way : ways()) {
    run_on_devices(way, 0, 2000, [&](const OfRank& of) {
      std::byte* const mine = of.target.at(1000 * of.comm.rank());
      of.ranks.all_gather(mine, of.target.at(0), 1000);
      of.stream.synchronize();
      comm::barrier(of.comm);
      if (of.comm.rank() == 0) {
        kernels::Event done;
        of.ranks.all_gather(mine, of.target.at(0), 1000);
        done.record(of.stream);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_FALSE(done.is_reached());
        of.ranks.throw_if_failed();
        of.ranks.abort();
        done.synchronize();
        kernels::zero(of.target.at(0), of.target.bytes());
        of.stream.synchronize();
        EXPECT_EQ(to_host(of.target), Bytes(2000));
        try {
          of.ranks.all_gather(mine, of.target.at(0), 1000);
          ADD_FAILURE() << "a communicator that was aborted serves on";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), 1102);
        }
      }
      comm::barrier(of.comm);
    });
  }
}

}  // namespace
}  // namespace trireme::engine
