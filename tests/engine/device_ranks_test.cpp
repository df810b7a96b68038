// Collectives of devices beside those of the host, whose bits they have. Ranks are threads, each with a device.
#include "engine/device_ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "comm/ranks.h"
#include "comm/reference.h"
#include "kernels/device.h"
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

// body(host, ranks) on each of two threads that play ranks, on a stream of its device.
void run_on_devices(std::int64_t scratch_bytes,
                    const std::function<void(comm::Communicator&, DeviceRanks&, const kernels::Stream&)>& body) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    kernels::use_device(comm.rank());
    const kernels::Stream stream;
    const Memory scratch(scratch_bytes, MemoryKind::device);
    DeviceRanks ranks(comm, scratch);
    const kernels::OnStream on(stream);
    body(comm, ranks, stream);
    stream.synchronize();
  });
}

// 17 million elements of fp32 do not arrive at once.
TEST_F(Devices, ReduceScatterHasTheBitsOfTheHost) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(seed);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const ReduceTypes types{dtype, dtype, DType::f32};
    for (const std::int64_t slice : {0, 256, 70'001, 17'000'000}) {
      if (slice > 1'000'000 && dtype != DType::f32) continue;
      const std::int64_t scratch = device_scratch_bytes(types, slice, 2, 2);
      EXPECT_LE(scratch, std::int64_t{128} << 20);
      run_on_devices(scratch, [&](comm::Communicator& comm, DeviceRanks& ranks, const kernels::Stream& stream) {
        std::mt19937_64 random(seed + static_cast<unsigned>(comm.rank()));
        for (const int participants : {1, 2}) {
          for (const bool first : {true, false}) {
            const Bytes slot = comm::random_slot(random, dtype, 2 * slice);
            Bytes sum = comm::random_slot(random, DType::f32, slice);
            const Memory slot_there = on_device(slot), sum_there = on_device(sum);
            const bool takes_part = comm.rank() < participants;
            ordered_reduce_scatter(ranks, takes_part ? slot_there.at(0) : nullptr, types, sum_there.at(0), slice,
                                   participants, first);
            stream.synchronize();
            comm::ordered_reduce_scatter(comm, takes_part ? slot.data() : nullptr, types, sum.data(), slice,
                                         participants, first);
            EXPECT_TRUE(to_host(sum_there) == sum) << to_string(dtype) << ", " << slice << ", " << participants;
          }
        }
      });
    }
  }
}

TEST_F(Devices, SumsInPlaceHaveTheBitsOfTheHost) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE(seed);
  const ReduceTypes sums;
  for (const std::int64_t slice : {1, 256, 70'001}) {
    run_on_devices(device_scratch_bytes(sums, slice + 1, 2, 2),
                   [&](comm::Communicator& comm, DeviceRanks& ranks, const kernels::Stream& stream) {
                     std::mt19937_64 random(seed + static_cast<unsigned>(comm.rank()));
                     Bytes values = comm::random_slot(random, DType::f32, 2 * slice);
                     const Memory there = on_device(values);
                     ordered_scatter_sums(ranks, there.at(0), DType::f32, slice);
                     stream.synchronize();
                     comm::ordered_scatter_sums(comm, values.data(), DType::f32, slice);
                     EXPECT_TRUE(to_host(there) == values) << slice;
                     for (const std::int64_t numel : {2 * slice, 2 * slice - 1}) {
                       ordered_all_reduce(ranks, there.at(0), DType::f32, numel);
                       stream.synchronize();
                       comm::ordered_all_reduce(comm, values.data(), DType::f32, numel);
                       EXPECT_TRUE(to_host(there) == values) << slice << ", all-reduce of " << numel;
                     }
                   });
  }
}

TEST_F(Devices, AllGatherPutsWhatRanksHaveInTheirOrder) {
  run_on_devices(0, [&](comm::Communicator& comm, DeviceRanks& ranks, const kernels::Stream& stream) {
    const Bytes mine(1000, std::byte(comm.rank() + 1));
    Bytes expected(1000, std::byte{1});
    expected.resize(2000, std::byte{2});
    const Memory there = on_device(mine), all(2000, MemoryKind::device);
    ranks.all_gather(there.at(0), all.at(0), 1000);
    stream.synchronize();
    EXPECT_EQ(to_host(all), expected);
    ranks.all_gather(all.at(1000 * comm.rank()), all.at(0), 1000);  // in place
    stream.synchronize();
    EXPECT_EQ(to_host(all), expected);
  });
}

// A stream that waits for a peer which does not come is free again, and of use to others.
TEST_F(Devices, AnAbortFreesTheStream) {
  run_on_devices(0, [&](comm::Communicator& comm, DeviceRanks& ranks, const kernels::Stream& stream) {
    const Memory all(2000, MemoryKind::device);
    ranks.all_gather(all.at(1000 * comm.rank()), all.at(0), 1000);
    stream.synchronize();
    comm::barrier(comm);
    if (comm.rank() == 0) {
      kernels::Event done;
      ranks.all_gather(all.at(0), all.at(0), 1000);
      done.record(stream);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_FALSE(done.is_reached());
      ranks.throw_if_failed();
      ranks.abort();
      done.synchronize();
      kernels::zero(all.at(0), all.bytes());
      stream.synchronize();
      EXPECT_EQ(to_host(all), Bytes(2000));
      try {
        ranks.all_gather(all.at(0), all.at(0), 1000);
        ADD_FAILURE() << "a communicator that was aborted serves on";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), 1102);
      }
    }
    comm::barrier(comm);
  });
}

}  // namespace
}  // namespace trireme::engine
