// The worker under a real torchrun, whose agent serves the store. Needs the Python side of torch, which the set-up
// unpacks for tests only.
#include <gtest/gtest.h>

#include "support/process.h"
#include "support/torchrun.h"

namespace trireme::launch {
namespace {

using testing::ProcessResult;

TEST(Torchrun, StartsWorkersAndHearsOfTheirFailures) {
  const auto command = [](const std::string& behaviour, const std::string& argument) {
    return testing::torchrun_command({TRIREME_TEST_WORKER, behaviour, argument});
  };
  if (command("", "").empty()) GTEST_SKIP() << testing::kNoTorchrun;
  const ProcessResult good = testing::run(command("collectives", "17"));
  EXPECT_EQ(good.exit_code, 0) << good.err;
  const ProcessResult bad = testing::run(command("fail", "1"));
  EXPECT_NE(bad.exit_code, 0);
  EXPECT_TRUE(testing::says(bad.err, "rank 1 ends: TR4002: data/x.jsonl:7: record 7 is bad")) << bad.err;
  EXPECT_TRUE(testing::says(bad.err, "rank 0 ends: TR4002: rank 1: data/x.jsonl:7: record 7 is bad")) << bad.err;
}

}  // namespace
}  // namespace trireme::launch
