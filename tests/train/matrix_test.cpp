// The equality matrix: any legal combination of ways to run is the serial run of the same model. All pairs of settings
// are covered, and random combinations beside them.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "support/seed.h"
#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

// Settings of one way to run; keys that decide numbers first.
struct Axis {
  const char* name;
  bool decides_numbers;
  std::vector<std::vector<std::string>> values;  // overrides; "ranks=N" and the like are read by run_of()
};

const std::vector<Axis>& axes() {
  static const std::vector<Axis> axes{
      {"micro-batches", true, {{"M=4"}, {"M=5"}, {"M=6"}}},
      {"embedding", true, {{"tied=1"}, {"tied=0"}}},
      {"family", true, {{"gpt2=0"}, {"gpt2=1"}}},
      {"clipping", true, {{}, {"training.gradient_clipping=0"}}},
      {"ranks", false, {{"ranks=1"}, {"ranks=2"}, {"ranks=3"}, {"ranks=4"}, {"ranks=5"}}},
      {"strategy",
       false,
       {{"distributed.strategy=ddp"},
        {"distributed.strategy=zero1"},
        {"distributed.strategy=zero2"},
        {"distributed.strategy=zero3"},
        {"distributed.strategy=shard_grad_op"},
        {"distributed.strategy=hybrid_shard", "distributed.dp_replicate=2"}}},
      {"recompute",
       false,
       {{},
        {"training.gradient_checkpointing=selective"},
        {"training.gradient_checkpointing=full"},
        {"training.gradient_checkpointing=full", "training.recompute_every=2"},
        {"training.gradient_checkpointing=full", "training.cpu_checkpointing=true"}}},
      {"offload", false, {{}, {"distributed.offload_optimizer=cpu"}, {"distributed.offload_param=cpu"}}},
      {"overlap", false, {{}, {"distributed.overlap_comm=false"}}},
  };
  return axes;
}

using Combination = std::vector<int>;  // per axis, which value

bool has(const Combination& combination, const std::string& override) {
  for (std::size_t axis = 0; axis < axes().size(); ++axis) {
    for (const std::string& value : axes()[axis].values[combination[axis]]) {
      if (value == override) return true;
    }
  }
  return false;
}

bool is_hybrid(const Combination& combination) {
  return has(combination, "distributed.strategy=hybrid_shard");
}

bool is_legal(const Combination& combination) {
  if (has(combination, "ranks=5") && has(combination, "M=4")) return false;
  const bool shards_parameters = is_hybrid(combination) || has(combination, "distributed.strategy=zero3") ||
                                 has(combination, "distributed.strategy=shard_grad_op");
  if (has(combination, "distributed.offload_param=cpu") && !shards_parameters) return false;
  return !is_hybrid(combination) || has(combination, "ranks=4");
}

TinyRun run_of(const Combination& combination) {
  TinyRun run{.steps = 4};
  for (std::size_t axis = 0; axis < axes().size(); ++axis) {
    for (const std::string& value : axes()[axis].values[combination[axis]]) {
      const std::string key = value.substr(0, value.find('='));
      const auto number = [&] { return std::atoi(value.c_str() + key.size() + 1); };
      if (key == "M") {
        run.micro_batches = number();
      } else if (key == "ranks") {
        run.ranks = number();
      } else if (key == "tied") {
        run.tied = number() != 0;
      } else if (key == "gpt2") {
        run.gpt2 = number() != 0;
      } else {
        run.overrides.push_back(value);
      }
    }
  }
  return run;
}

std::string words_of(const Combination& combination) {
  std::string text;
  for (std::size_t axis = 0; axis < axes().size(); ++axis) {
    for (const std::string& value : axes()[axis].values[combination[axis]]) text += (text.empty() ? "" : ", ") + value;
  }
  return text;
}

Combination random_combination(std::mt19937& random) {
  Combination combination;
  do {
    combination.clear();
    for (const Axis& axis : axes()) combination.push_back(static_cast<int>(random() % axis.values.size()));
  } while (!is_legal(combination));
  return combination;
}

using Pair = std::tuple<std::size_t, int, std::size_t, int>;  // axis, value, another axis, value

void add_pairs(const Combination& combination, std::set<Pair>& pairs) {
  for (std::size_t a = 0; a < combination.size(); ++a) {
    for (std::size_t b = a + 1; b < combination.size(); ++b) pairs.insert({a, combination[a], b, combination[b]});
  }
}

// All pairs that a legal combination holds.
std::set<Pair> legal_pairs() {
  std::set<Pair> pairs;
  Combination combination(axes().size(), 0);
  while (true) {
    if (is_legal(combination)) add_pairs(combination, pairs);
    std::size_t axis = 0;
    while (axis < combination.size() && ++combination[axis] == static_cast<int>(axes()[axis].values.size())) {
      combination[axis++] = 0;
    }
    if (axis == combination.size()) return pairs;
  }
}

// Few combinations that hold all legal pairs: each the best of many random ones.
std::vector<Combination> covering_combinations(std::mt19937& random) {
  const std::set<Pair> wanted = legal_pairs();
  std::set<Pair> covered;
  std::vector<Combination> chosen;
  while (covered.size() < wanted.size()) {
    Combination best;
    std::size_t most = covered.size();
    for (int i = 0; i < 200; ++i) {
      const Combination candidate = random_combination(random);
      std::set<Pair> with = covered;
      add_pairs(candidate, with);
      if (with.size() <= most) continue;
      most = with.size();
      best = candidate;
    }
    if (best.empty()) continue;
    add_pairs(best, covered);
    chosen.push_back(best);
  }
  EXPECT_EQ(covered, wanted);
  return chosen;
}

class Matrix {
 public:
  void check(const Combination& combination) {
    SCOPED_TRACE(words_of(combination));
    const TinyResult& serial = serial_of(combination);
    const TinyResult parallel = train_tiny(run_of(combination));
    EXPECT_TRUE(parallel.all_ranks_equal);
    EXPECT_EQ(parallel.samples, serial.samples);
    if (is_hybrid(combination)) {  // another tree of the same sum
      EXPECT_NEAR(parallel.losses[0], serial.losses[0], 1e-6 * serial.losses[0]);
      EXPECT_NEAR(parallel.gradient_norms[0], serial.gradient_norms[0], 2e-6 * serial.gradient_norms[0]);
      EXPECT_NEAR(parallel.losses[3], serial.losses[3], 1e-4 * serial.losses[3]);
      return;
    }
    EXPECT_EQ(parallel.losses, serial.losses);
    EXPECT_EQ(parallel.gradient_norms, serial.gradient_norms);
    EXPECT_EQ(parallel.weights_digest, serial.weights_digest);
  }

 private:
  // One rank, ddp, nothing else, of what decides numbers.
  const TinyResult& serial_of(Combination combination) {
    for (std::size_t axis = 0; axis < axes().size(); ++axis) {
      if (!axes()[axis].decides_numbers) combination[axis] = 0;
    }
    const auto found = serial_.find(combination);
    if (found != serial_.end()) return found->second;
    return serial_.emplace(combination, train_tiny(run_of(combination))).first->second;
  }

  std::map<Combination, TinyResult> serial_;
};

TEST(EqualityMatrix, AllPairsOfSettings) {
  const unsigned seed = test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<Combination> combinations = covering_combinations(random);
  std::printf("%zu combinations hold all %zu pairs\n", combinations.size(), legal_pairs().size());
  Matrix matrix;
  for (const Combination& combination : combinations) matrix.check(combination);
}

// TRIREME_COMBINATIONS=N asks for a longer search.
TEST(EqualityMatrix, RandomCombinations) {
  const char* wanted = std::getenv("TRIREME_COMBINATIONS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 100;
  const unsigned seed = test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  Matrix matrix;
  for (int i = 0; i < count; ++i) matrix.check(random_combination(random));
}

}  // namespace
}  // namespace trireme::testing
