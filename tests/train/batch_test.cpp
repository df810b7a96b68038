// global = micro x accumulation x ranks: what follows from what, and what a contradiction says.
#include "train/batch.h"

#include "support/expect_error.h"

namespace trireme::train {
namespace {

struct Given {
  std::int64_t global = 0, micro = 0, accumulation = 0;  // 0: not given
};

config::Plan plan_of(const Given& given) {
  std::string yaml =
      "model: {hidden_size: 64, num_layers: 2, num_heads: 4}\ndata: {path: tokens}\ntraining:\n  max_steps: 10\n";
  const auto add = [&](const char* key, std::int64_t value) {
    if (value != 0) yaml += "  " + std::string(key) + ": " + std::to_string(value) + "\n";
  };
  add("global_batch_size", given.global);
  add("micro_batch_size", given.micro);
  add("gradient_accumulation_steps", given.accumulation);
  return config::parse_plan(yaml, "run.yaml", {});
}

BatchSizes batch(const Given& given, const Ranks& ranks, const std::optional<ResumeFacts>& resume = {}) {
  std::vector<std::string> notices;
  return batch_of(plan_of(given), ranks, resume, notices);
}

void expect_batch(const BatchSizes& batch, std::int64_t micro, std::int64_t num_micro_batches) {
  EXPECT_EQ(batch.micro_batch_size, micro);
  EXPECT_EQ(batch.num_micro_batches, num_micro_batches);
}

void expect_words(const std::string& error, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(error.find(word), std::string::npos) << word << " is not in\n" << error;
}

TEST(Batches, AnyTwoOfTheThreeGiveTheThirdOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::int64_t micro : {1, 3, 8}) {
      for (const std::int64_t accumulation : {1, 2, 5}) {
        const std::int64_t global = micro * accumulation * ranks;
        for (const Given& given : {Given{global, micro, accumulation}, Given{global, micro, 0},
                                   Given{global, 0, accumulation}, Given{0, micro, accumulation}}) {
          SCOPED_TRACE(::testing::PrintToString(std::vector{given.global, given.micro, given.accumulation}));
          const BatchSizes made = batch(given, ranks);
          expect_batch(made, micro, accumulation * ranks);
          EXPECT_EQ(made.global_size(), global);
        }
      }
    }
  }
}

// Neither bits nor memory of a rank change with the number of ranks.
TEST(Batches, GlobalAloneIsCutIntoSingleSamples) {
  for (const int ranks : {1, 3, 4}) expect_batch(batch({.global = 32}, ranks), 1, 32);
}

TEST(Batches, OneAloneIsOneMicroBatchARank) {
  expect_batch(batch({.micro = 4}, 2), 4, 2);
  expect_batch(batch({.accumulation = 3}, 2), 1, 6);
  expect_batch(batch({}, 2), 1, 2);
}

// Ours: the last round of a step may be shared by fewer ranks.
TEST(Batches, GlobalAndMicroMayLeaveTheLastRoundUneven) {
  expect_batch(batch({.global = 20, .micro = 4}, 2), 4, 5);
  expect_batch(batch({.global = 20, .micro = 4}, 3), 4, 5);
  expect_words(trireme::testing::expect_error(2210, [] { batch({.global = 20, .micro = 4}, 6); }),
               {"too few for 6 ranks", "20 = micro_batch_size 4 x 5"});
}

TEST(Batches, AContradictionShowsAllFactorsTheirPlacesAndWhatFits) {
  const std::string error = trireme::testing::expect_error(2212, [] {
    batch({.global = 32, .micro = 4, .accumulation = 2}, {2, "--nproc-per-node"});
  });
  expect_words(error,
               {"run.yaml:5:3", "global_batch_size 32 is not micro_batch_size 4 (run.yaml:6:3)",
                "gradient_accumulation_steps 2 (run.yaml:7:3)", "2 ranks (--nproc-per-node)", "4 x 2 x 2 = 16",
                "use global_batch_size 16, or micro_batch_size 8, or gradient_accumulation_steps 4; or start 4 ranks"});
  // 256 of eight processes that were counted as one (deepspeed.md, complaint 2): the source of the number is told.
  expect_words(
      trireme::testing::expect_error(2212,
                                     [] {
                                       batch({.global = 256, .micro = 4, .accumulation = 8}, {1, "no launcher"});
                                     }),
      {"1 rank (no launcher)", "4 x 8 x 1 = 32", "start 8 ranks"});
}

TEST(Batches, ARemainderNamesTheNearestGlobalBatches) {
  expect_words(trireme::testing::expect_error(2212, [] { batch({.global = 30, .accumulation = 4}, 2); }),
               {"gradient_accumulation_steps 4", "30 is not a multiple of 8", "use global_batch_size 24 or 32"});
  expect_words(trireme::testing::expect_error(2212, [] { batch({.global = 3, .accumulation = 1}, 4); }),
               {"3 is not a multiple of 4", "use global_batch_size 4"});
}

// The same on every choice: what the remedy offers is accepted.
TEST(Batches, WhatTheRemedyOffersFits) {
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t global : {24, 32, 48, 60}) {
      for (const std::int64_t micro : {1, 2, 3, 4}) {
        const Given given{global, micro, 2};
        if (global % micro != 0 || global == micro * 2 * ranks) continue;
        const std::string error = trireme::testing::expect_error(2212, [&] { batch(given, ranks); });
        const auto offered = [&](const std::string& name) {
          const std::size_t use = error.find(" use "), at = error.find(name + " ", use);
          return at == std::string::npos ? 0 : std::stoll(error.substr(at + name.size()));
        };
        EXPECT_EQ(batch({offered("global_batch_size"), micro, 2}, ranks).micro_batch_size, micro);
        if (const auto value = offered("micro_batch_size")) batch({global, value, 2}, ranks);
        if (const auto value = offered("gradient_accumulation_steps")) batch({global, micro, value}, ranks);
        if (const auto value = offered("or start")) batch(given, static_cast<int>(value));
      }
    }
  }
}

TEST(Batches, ACheckpointKeepsItsGlobalBatch) {
  const ResumeFacts saved{.num_micro_batches = 8, .micro_batch_size = 2};
  expect_batch(batch({.micro = 2, .accumulation = 4}, 4, saved), 2, 8);
  expect_batch(batch({.global = 16}, 4, saved), 2, 8);
  expect_batch(batch({}, 16, saved), 1, 16);
  trireme::testing::expect_error(2221, [&] { batch({.global = 32}, 4, saved); });
  trireme::testing::expect_error(2222, [&] { batch({.micro = 3}, 4, saved); });
}

}  // namespace
}  // namespace trireme::train
