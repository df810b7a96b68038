// The worker under a real torchrun, whose agent serves the store. Needs the Python side of torch, which the set-up
// unpacks for tests only.
#include <gtest/gtest.h>

#include <cstdlib>

#include <filesystem>

#include "support/process.h"

namespace trireme::launch {
namespace {

using testing::ProcessResult;

constexpr const char* kPython = TRIREME_SOURCE_DIR "/.deps/oracle/bin/python";

bool has_torchrun() {
  return std::filesystem::exists(kPython) &&
         testing::run({kPython, "-c", "import torch.distributed.run"}).exit_code == 0;
}

ProcessResult torchrun(const std::vector<std::string>& behaviour) {
  std::vector<std::string> command = {
      kPython, "-m",          "torch.distributed.run", "--standalone", "--nproc-per-node",
      "2",     "--no-python", TRIREME_TEST_WORKER};
  command.insert(command.end(), behaviour.begin(), behaviour.end());
  return testing::run(command);
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Torchrun, StartsWorkersAndHearsOfTheirFailures) {
  if (std::getenv("TRIREME_TEST_TORCHRUN") == nullptr)
    GTEST_SKIP() << "set TRIREME_TEST_TORCHRUN=1: hangs at times on a loaded machine";
  if (!has_torchrun()) GTEST_SKIP() << "no torchrun: " << kPython << " cannot import torch.distributed.run";
  const ProcessResult good = torchrun({"collectives", "17"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  const ProcessResult bad = torchrun({"fail", "1"});
  EXPECT_NE(bad.exit_code, 0);
  EXPECT_TRUE(says(bad.err, "rank 1 ends: TR4002: data/x.jsonl:7: record 7 is bad")) << bad.err;
  EXPECT_TRUE(says(bad.err, "rank 0 ends: TR4002: rank 1: data/x.jsonl:7: record 7 is bad")) << bad.err;
}

}  // namespace
}  // namespace trireme::launch
