// `trireme bench kernels` as a user runs it.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "kernels/device.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

TEST(BenchKernels, SayWhereThereIsNoDevice) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "kernels.json";
  const ProcessResult result =
      run({TRIREME_BINARY, "bench", "kernels", "--output", file.string()}, {{"CUDA_VISIBLE_DEVICES", "-1"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("TR3064"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("there is no CUDA device here: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("run it on a machine with a device"), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(BenchKernels, MeasureThoseThatAreAskedForBesideTheCopy) {
  if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
  const TemporaryFolder folder;
  const auto file = folder.path() / "kernels.json";
  const ProcessResult result =
      run({TRIREME_BINARY, "bench", "kernels", "--only", "rmsnorm_forward", "--output", file.string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(read_file(file));
  EXPECT_EQ(json["device"], kernels::device_facts(0).name);
  ASSERT_GE(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["kernel"], "copy");
  for (const auto& row : json["rows"]) {
    EXPECT_TRUE(row["kernel"] == "copy" || row["kernel"] == "rmsnorm_forward") << row;
    EXPECT_GT(row["bytes"], 0) << row;
    EXPECT_NEAR(row["bytes"].get<double>() / row["seconds_median"].get<double>(), row["bytes_per_s"],
                1e-6 * row["bytes_per_s"].get<double>());
    // A launch that finds its numbers in a cache, or that does not run at all, would be faster than any copy.
    EXPECT_LT(row["share_of_copy"], 1.2) << row;
  }
}

}  // namespace
}  // namespace trireme::testing
