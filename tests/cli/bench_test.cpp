// `trireme bench train` as a user runs it, with a model of no size on the CPU.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "kernels/device.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Bench : public ::testing::Test {
 protected:
  ProcessResult bench(const std::vector<std::string>& arguments) const {
    std::vector<std::string> command{TRIREME_BINARY, "bench"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command, {{"TMPDIR", (folder_.path() / "tmp").string()},
                         {"XDG_CACHE_HOME", (folder_.path() / "cache").string()}});
  }
  ProcessResult train(const std::vector<std::string>& more, const std::string& model = "tiny") const {
    std::vector<std::string> arguments{"train",   "--model", model,       "--seq", "32",       "--micro-batch",    "2",
                                       "--steps", "5",       "--warm-up", "2",     "--output", row_file().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return bench(arguments);
  }
  fs::path row_file() const { return folder_.path() / "row.json"; }
  void SetUp() override { fs::create_directory(folder_.path() / "tmp"); }

  TemporaryFolder folder_;
};

TEST_F(Bench, TrainsAKnownModelAndWritesARow) {
  const ProcessResult result = train({"--device", "cpu", "--accumulate", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto row = nlohmann::json::parse(read_file(row_file()));
  EXPECT_EQ(nlohmann::json::parse(result.out), row);
  EXPECT_EQ(row["model"], "tiny");
  EXPECT_EQ(row["gpus"], 0);
  EXPECT_EQ(row["tokens_per_step"], 32 * 2 * 3);
  EXPECT_EQ(row["param_dtype"], "bf16");
  EXPECT_EQ(row["reduce_dtype"], "fp32");
  EXPECT_EQ(row["steps"], 5);
  const auto& spread = row["tokens_per_s_per_gpu_spread"];
  EXPECT_LE(spread[0], row["tokens_per_s_per_gpu"]);
  EXPECT_GE(spread[1], row["tokens_per_s_per_gpu"]);
  EXPECT_GT(spread[0], 0);
  EXPECT_GT(row["peak_memory_bytes"], 1 << 20);
  EXPECT_GT(row["planned_memory_bytes"], 1 << 20);
  // A random model knows nothing of 500 ids that come at random: ln(500) = 6.21.
  EXPECT_NEAR(row["first_loss"], 6.21, 0.1);
  EXPECT_GT(row["first_step_s"], 0.01);
  EXPECT_LT(row["first_step_s"], 300);
  EXPECT_FALSE(row.contains("mfu")) << "no peak is known of this processor";
  EXPECT_TRUE(fs::is_empty(folder_.path() / "tmp")) << "what the run was made of is still there";
}

TEST_F(Bench, TellsWhatThePlanPredictsWhereRatesWereMeasured) {
  const auto row = [&] {
    const ProcessResult result = train({"--device", "cpu"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(read_file(row_file()));
  };
  EXPECT_FALSE(row().contains("predicted_step_s"));
  EXPECT_EQ(bench({"--device", "cpu", "--ranks", "1", "--seconds", "0.01"}).exit_code, 0);
  EXPECT_GT(row()["predicted_step_s"], 0);
}

TEST_F(Bench, TrainsOnSeveralRanksAndTakesOverrides) {
  const ProcessResult result =
      train({"--device", "cpu", "--ranks", "2", "--strategy", "zero3", "--precision", "no", "--recompute", "full",
             "training.gradient_clipping=0", "distributed.offload_optimizer=cpu"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto row = nlohmann::json::parse(read_file(row_file()));
  EXPECT_EQ(row["ranks"], 2);
  EXPECT_EQ(row["tokens_per_step"], 32 * 2 * 2);
  EXPECT_EQ(row["strategy"], "zero3");
  EXPECT_EQ(row["offload_optimizer"], true);
  EXPECT_EQ(row["offload_param"], false);
  EXPECT_EQ(row["param_dtype"], "fp32");
  EXPECT_EQ(row["recompute"], "full");
  EXPECT_EQ(row["clip"], 0);
}

TEST_F(Bench, TimesThePartsOfAStepAndTheFloorThatTheyMake) {
  for (const char* model : {"tiny", "tiny-gpt2"}) {
    for (const char* kind : {"gemm", "attention"}) {
      const ProcessResult result = bench({kind, "--model", model, "--seq", "32", "--micro-batch", "2", "--device",
                                          "cpu", "--seconds", "0.01", "--output", row_file().string()});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const auto rows = nlohmann::json::parse(read_file(row_file()))["rows"];
      EXPECT_EQ(rows.size(), std::string(kind) == "gemm" ? 15u : 2u);
      for (const auto& row : rows) {
        EXPECT_GT(row["flops_per_s"], 0) << row;
        EXPECT_NE(result.out.find(row["part"].get<std::string>()), std::string::npos) << result.out;
        EXPECT_GT(row["times"].get<double>() * row["seconds"].get<double>(), 0) << row;
      }
    }
    const ProcessResult result = train({"--device", "cpu", "--floor", "0.01"}, model);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto row = nlohmann::json::parse(read_file(row_file()));
    const auto part = [&](const char* name) { return row["floor_parts"][name].get<double>(); };
    EXPECT_GT(part("products_s"), 0);
    EXPECT_GT(part("attention_s"), 0);
    const double moved_s = (part("elementwise_bytes") + part("update_bytes")) / part("copy_bytes_per_s");
    EXPECT_NEAR(row["floor_tokens_per_s_per_gpu"].get<double>() * (part("products_s") + part("attention_s") + moved_s),
                64, 1e-6);
  }
}

TEST_F(Bench, TimesTheCollectivesOfItsRanksBySize) {
  const ProcessResult result = bench({"comm", "--ranks", "3", "--device", "cpu", "--sizes", "0.25,1", "--precision",
                                      "no", "--seconds", "0.01", "--output", row_file().string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(read_file(row_file()));
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["gpus"], 0);
  ASSERT_EQ(json["rows"].size(), 2u * 3 * 3) << "alone and beside products: three collectives of 1 KiB and two sizes";
  for (const auto& row : json["rows"]) {
    EXPECT_EQ(row["dtype"], "float32");
    EXPECT_EQ(row["bytes"].get<std::int64_t>() % 12, 0) << "three ranks, an element each";
    const double passes = row["collective"] == "all_reduce" ? 2 : 1;
    EXPECT_NEAR(row["bus_bytes_per_s"].get<double>() * row["seconds"].get<double>(),
                passes * row["bytes"].get<double>() * 2 / 3, 1);
    EXPECT_NE(result.out.find(" " + row["bytes"].dump() + " "), std::string::npos) << result.out;
  }
  for (const char* collective : {"all_gather", "reduce_scatter", "all_reduce"}) {
    EXPECT_GT(json["latency_s"][collective], 1e-9);
    EXPECT_LT(json["latency_s"][collective], 10);
    EXPECT_NE(result.out.find(collective), std::string::npos) << result.out;
  }
}

TEST_F(Bench, SaysWhatItCannotRun) {
  const ProcessResult unknown = bench({"train", "--model", "llama-2b", "--seq", "32"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("TR2019"), std::string::npos) << unknown.err;
  EXPECT_NE(unknown.err.find("llama-1b"), std::string::npos) << unknown.err;
  EXPECT_EQ(bench({"comm", "--ranks", "1"}).exit_code, 2) << "a rank by itself exchanges nothing";
  if (kernels::num_devices() > 0) return;
  const ProcessResult comm = bench({"comm", "--device", "cuda"});
  EXPECT_EQ(comm.exit_code, 3);
  EXPECT_NE(comm.err.find("TR3064"), std::string::npos) << comm.err;
  const ProcessResult device = train({"--device", "cuda"});
  EXPECT_EQ(device.exit_code, 3);
  EXPECT_NE(device.err.find("TR3064"), std::string::npos) << device.err;
}

}  // namespace
}  // namespace trireme::testing
