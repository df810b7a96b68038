// What a run makes of samples: padding counts nothing, epochs have a mean loss, receivers get what the JSON lines have.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

const std::string kSource = TRIREME_SOURCE_DIR;

std::vector<nlohmann::json> events(const TinyRun& run, const std::string& name) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(read_file(run.output_dir / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.value("event", "") == name) found.push_back(record);
  }
  return found;
}

TinyRun padded_run(const TemporaryFolder& folder, std::vector<std::string> overrides = {}) {
  TinyRun run{.steps = 6, .output_dir = folder.path() / "run", .data = short_documents().folder};
  run.overrides = std::move(overrides);
  run.overrides.insert(run.overrides.begin(), {"data.packing=padded", "model.max_position_embeddings=64"});
  return run;
}

TinyResult train_padded(std::vector<std::string> overrides, int ranks = 1) {
  const TemporaryFolder folder;
  TinyRun run = padded_run(folder, std::move(overrides));
  run.ranks = ranks;
  return train_tiny(run);
}

TEST(Padded, HasTheSameBitsOnAnyNumberOfRanks) {
  const TinyResult serial = train_padded({}), parallel = train_padded({}, 3);
  EXPECT_LT(serial.losses.back(), serial.losses.front());
  EXPECT_EQ(serial.losses, parallel.losses);
  EXPECT_EQ(serial.weights_digest, parallel.weights_digest);
}

TEST(Padded, IsEvaluatedAlikeOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  TinyRun run = padded_run(folder, {"data.split=train[:40]", "data.eval_split=train[40:]"});
  std::vector<nlohmann::json> evaluations;
  for (const int ranks : {1, 3}) {
    run.ranks = ranks;
    run.output_dir = folder.path() / std::to_string(ranks);
    train_tiny(run);
    evaluations.push_back(events(run, "eval").at(0));
  }
  EXPECT_EQ(evaluations[0], evaluations[1]);
  EXPECT_FALSE(evaluations[0].contains("bits_per_byte")) << "documents are cut";
  std::int64_t labels = 0;
  for (std::size_t i = 40; i < 50; ++i) {
    labels += std::min<std::int64_t>(std::ssize(short_documents().texts[i]), 15);
  }
  EXPECT_EQ(evaluations[0]["tokens"], labels);
}

TEST(Padded, ThePadTokenChangesNoBit) {
  const TinyResult unset = train_padded({}), other = train_padded({"data.pad_token=s"});
  EXPECT_EQ(unset.losses, other.losses);
  EXPECT_EQ(unset.gradient_norms, other.gradient_norms);
  EXPECT_EQ(unset.weights_digest, other.weights_digest);
}

TEST(Padded, MorePaddingChangesNothing) {
  const TinyResult tight = train_padded({"data.sequence_length=41", "model.initializer_range=0.3"});
  const TinyResult wide = train_padded({"data.sequence_length=64", "model.initializer_range=0.3"});
  for (std::size_t step = 0; step < tight.losses.size(); ++step) {
    EXPECT_NEAR(tight.losses[step], wide.losses[step], 1e-4 * tight.losses[step]) << "step " << step + 1;
  }
  EXPECT_NEAR(tight.losses[0], wide.losses[0], 1e-6 * tight.losses[0]);
  EXPECT_NEAR(tight.gradient_norms[0], wide.gradient_norms[0], 2e-6 * tight.gradient_norms[0]);
}

// Documents cut and padded; weights drawn wide, so that a padded place that is seen or counted shows.
TEST(Padded, LossAndGradientNormAreThoseOfTransformers) {
  const TemporaryFolder folder;
  TinyRun run = padded_run(folder, {"data.sequence_length=24", "model.initializer_range=0.3",
                                    "training.learning_rate=0", "training.gradient_clipping=0"});
  run.steps = 1;
  run.ranks = 2;
  run.micro_batches = 10;
  run.micro_batch_size = 5;  // all 50 in one step
  const TinyResult result = train_tiny(run);
  std::ofstream(folder.path() / "texts.json") << nlohmann::json(short_documents().texts);
  const ProcessResult oracle = testing::run({kOraclePython, "-B", kSource + "/tests/train/padded_oracle.py",
                                             run.output_dir, folder.path() / "texts.json", "24"},
                                            {{"TOKENIZERS_PARALLELISM", "false"}, {"OMP_NUM_THREADS", "1"}});
  if (oracle.exit_code == 77 || oracle.exit_code == 127) {
    GTEST_SKIP() << "no transformers in .deps/oracle (scripts/setup.sh --tests installs it)";
  }
  ASSERT_EQ(oracle.exit_code, 0) << oracle.err;
  double loss = 0, norm = 0;
  std::istringstream(oracle.out) >> loss >> norm;
  RecordProperty("loss", std::to_string(result.losses[0]) + " transformers " + std::to_string(loss));
  EXPECT_NEAR(result.losses[0], loss, 1e-4);
  EXPECT_NEAR(result.gradient_norms[0], norm, 1e-4 * norm);
}

// 50 samples in steps of 8: the first epoch's last step begins with sample 48.
TEST(Epochs, HaveTheMeanLossOfTheirStepsAlsoWhereTheyWereStopped) {
  const TemporaryFolder folder;
  TinyRun run = padded_run(folder, {"training.num_epochs=2"});
  run.steps = 0;
  TinyResult all;
  for (const std::int64_t stop : {3, 9, 0}) {
    run.stop_at = [&](int, std::int64_t step) { return step == stop; };
    const TinyResult part = train_tiny(run);
    all.losses.insert(all.losses.end(), part.losses.begin(), part.losses.end());
  }
  ASSERT_EQ(all.losses.size(), 12u);
  const auto found = events(run, "epoch");
  ASSERT_EQ(found.size(), 2u);
  const auto mean = [&](std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t step = first; step <= last; ++step) sum += all.losses[step - 1];
    return sum / static_cast<double>(last - first + 1);
  };
  EXPECT_EQ(found[0],
            (nlohmann::json{{"event", "epoch"}, {"step", 7}, {"epoch", 1}, {"loss", mean(1, 7)}, {"steps", 7}}));
  EXPECT_EQ(found[1],
            (nlohmann::json{{"event", "epoch"}, {"step", 12}, {"epoch", 2}, {"loss", mean(8, 12)}, {"steps", 5}}));
}

TEST(Epochs, OneThatTheRunDoesNotFinishHasNoMean) {
  const TemporaryFolder folder;
  TinyRun run = padded_run(folder);  // 6 steps of 8 take 48 of 50: the rest fills no step
  train_tiny(run);
  EXPECT_EQ(events(run, "epoch").size(), 1u);
  const TemporaryFolder other;
  run.output_dir = other.path() / "run";
  run.steps = 5;
  train_tiny(run);
  EXPECT_EQ(events(run, "epoch").size(), 0u);
}

TEST(Receivers, TensorBoardHasTheCurvesOfAResumedRun) {
  const TemporaryFolder folder;
  TinyRun run{.ranks = 2, .steps = 30, .output_dir = folder.path() / "run"};
  run.overrides = {"monitor.report_to=[tensorboard]", "checkpoint.save_interval=4", "training.eval_interval=3",
                   "data.max_samples=64", "data.eval_split=heldout[:2]"};
  run.stop_at = [](int, std::int64_t step) { return step == 18; };
  EXPECT_TRUE(train_tiny(run).stopped);
  std::filesystem::remove_all(run.output_dir / "checkpoints/step-00000018");  // 17 and 18 will be done again
  run.stop_at = {};
  train_tiny(run);
  const ProcessResult oracle =
      testing::run({kOraclePython, "-B", kSource + "/tests/monitor/tensorboard_oracle.py", "equal", run.output_dir});
  if (oracle.exit_code == 77 || oracle.exit_code == 127) {
    GTEST_SKIP() << "no TensorBoard in .deps/oracle (scripts/setup.sh --tests installs it)";
  }
  EXPECT_EQ(oracle.exit_code, 0) << oracle.out << oracle.err;
  EXPECT_NE(oracle.out.find("12 curves"), std::string::npos) << oracle.out;
}

TEST(Data, MustBeWhatThePlanSaysOfIt) {
  const TemporaryFolder folder;
  TinyRun run = padded_run(folder, {"data.text_field=body"});
  train_tiny(run);
  run.overrides = {"data.text_field=text"};
  expect_error(2250, [&] { train_tiny(run); });
  run.overrides = {"data.packing=padded", "data.pad_token=oars"};
  expect_error(4027, [&] { train_tiny(run); });
  run.overrides = {"data.split=test"};
  expect_error(4025, [&] { train_tiny(run); });
  run.overrides = {"data.split=train[50:]"};
  expect_error(4023, [&] { train_tiny(run); });
  run.overrides = {"data.packing=padded", "data.max_samples=7", "training.max_steps=", "training.num_epochs=1",
                   "training.global_batch_size=8"};
  run.output_dir = folder.path() / "other";
  expect_error(2230, [&] { train_tiny(run); });
}

}  // namespace
}  // namespace trireme::testing
