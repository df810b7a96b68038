// What no schedule is built for.
#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/build.h"
#include "schedule/chains.h"

namespace trireme::schedule {
namespace {

// More ranks than micro-batches is the user's mistake and says the way out.
TEST(BuildSchedule, RefusesMoreRanksThanMicroBatches) {
  try {
    build_schedule(make_small_chain(1, false), {.world_size = 3, .num_micro_batches = 2}, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 2210);
    EXPECT_NE(error.message().find("3 data ranks for 2 micro-batches"), std::string::npos) << error.what();
    EXPECT_FALSE(error.remedy().empty());
  }
}

// A chain that contradicts itself is refused, not run.
TEST(BuildSchedule, RefusesContradictoryChains) {
  const auto code = [](auto change) {
    ChainSpec chain = make_small_chain(1, false);
    change(chain);
    try {
      build_schedule(chain, {.world_size = 2, .num_micro_batches = 2}, 0);
    } catch (const Error& error) {
      return error.code();
    }
    return 0;
  };
  EXPECT_EQ(code([](ChainSpec&) {}), 0);
  EXPECT_EQ(code([](ChainSpec& chain) { chain.groups[0].trainable = false; }), 1000);
  EXPECT_EQ(code([](ChainSpec& chain) { chain.groups[0].numel = 300; }), 1000);
  EXPECT_EQ(code([](ChainSpec& chain) { chain.units[0].reads = {7}; }), 1000);
  EXPECT_EQ(code([](ChainSpec& chain) { chain.units[0].gradients = {0, 0}; }), 1000);
  EXPECT_EQ(code([](ChainSpec& chain) { chain.units[0].gradients = {}; }), 1000);
  EXPECT_EQ(code([](ChainSpec& chain) { chain.units = {}; }), 1000);
}

}  // namespace
}  // namespace trireme::schedule
