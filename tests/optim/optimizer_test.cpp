// The kernels of all optimizers, with the arguments that a run gives them, against torch.optim.
#include "optim/optimizer.h"

#include <cmath>
#include <fstream>
#include <limits>

#include "kernels/support.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::optim {
namespace {

using config::Optimizer;
using kernels::Numbers;
using testing::kOraclePython;

struct Case {
  OptimizerOptions options;
  const char* torch;  // the same in torch's words
};

const Case kCases[] = {
    {{.kind = Optimizer::adamw, .beta2 = 0.95, .weight_decay = 0.1},
     R"({"class": "AdamW", "arguments": {"betas": [0.9, 0.95], "weight_decay": 0.1}})"},
    {{.kind = Optimizer::adam, .beta1 = 0.8, .eps = 1e-6, .weight_decay = 0.1},
     R"({"class": "Adam", "arguments": {"betas": [0.8, 0.999], "eps": 1e-6, "weight_decay": 0.1}})"},
    {{.kind = Optimizer::sgd, .weight_decay = 0.1}, R"({"class": "SGD", "arguments": {"weight_decay": 0.1}})"},
    {{.kind = Optimizer::sgd, .weight_decay = 0.1, .momentum = 0.9},
     R"({"class": "SGD", "arguments": {"weight_decay": 0.1, "momentum": 0.9}})"},
    {{.kind = Optimizer::sgd, .weight_decay = 0.1, .momentum = 0.7, .nesterov = true},
     R"({"class": "SGD", "arguments": {"weight_decay": 0.1, "momentum": 0.7, "nesterov": true}})"},
    {{.kind = Optimizer::adagrad, .eps = 1e-10, .weight_decay = 0.1},
     R"({"class": "Adagrad", "arguments": {"weight_decay": 0.1}})"},
    {{.kind = Optimizer::adagrad, .eps = 0.1, .initial_accumulator_value = 0.3},
     R"({"class": "Adagrad", "arguments": {"eps": 0.1, "initial_accumulator_value": 0.3}})"},
    {{.kind = Optimizer::lion, .beta2 = 0.99, .weight_decay = 0.1},
     R"({"class": "Lion", "arguments": {"betas": [0.9, 0.99], "weight_decay": 0.1}})"},
};

constexpr std::int64_t kSize = 517;
constexpr int kSteps = 50;

struct Course {
  std::vector<float> weights;
  std::vector<std::vector<float>> gradients;
  std::vector<double> rates, scales;
};

// Lion's direction is a sign: an element whose direction is nearly zero would have one in fp32 and another in double.
Course make_course(Numbers& numbers) {
  Course course{.weights = numbers.normal<float>(kSize)};
  std::vector<double> momentum(kSize);
  for (int step = 1; step <= kSteps; ++step) {
    const double scale = step % 3 == 0 ? 0.37 : 1.0;
    auto gradient = numbers.normal<float>(kSize);
    for (std::int64_t i = 0; i < kSize; ++i) {
      while (std::abs(0.9 * momentum[i] + 0.1 * scale * gradient[i]) < 1e-4) gradient[i] = numbers.normal<float>(1)[0];
      momentum[i] = 0.99 * momentum[i] + 0.01 * scale * gradient[i];
    }
    course.gradients.push_back(std::move(gradient));
    course.rates.push_back(1e-2 * step / kSteps);
    course.scales.push_back(scale);
  }
  return course;
}

std::string list(const std::vector<double>& values) {
  std::string text;
  char number[32];
  for (const double value : values) {
    std::snprintf(number, sizeof number, "%s%.17g", text.empty() ? "" : ", ", value);
    text += number;
  }
  return "[" + text + "]";
}

// Of each case, torch's weights after the last step.
std::vector<std::vector<double>> ask_torch(const Course& course) {
  const testing::TemporaryFolder folder;
  const auto input = folder.path() / "input", output = folder.path() / "output";
  std::ofstream file(input, std::ios::binary);
  const auto write = [&](const std::vector<float>& row) {
    file.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  };
  write(course.weights);
  for (const auto& gradient : course.gradients) write(gradient);
  file.close();
  std::string cases;
  for (const Case& one : kCases) cases += (cases.empty() ? "" : ", ") + std::string(one.torch);
  const auto result = testing::run({kOraclePython, "-B", TRIREME_SOURCE_DIR "/tests/optim/torch_optimizers.py",
                                    "{\"n\": " + std::to_string(kSize) + ", \"rates\": " + list(course.rates) +
                                        ", \"scales\": " + list(course.scales) + ", \"cases\": [" + cases + "]}",
                                    input, output});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::vector<double>> all(std::size(kCases), std::vector<double>(kSize));
  std::ifstream back(output, std::ios::binary);
  for (auto& weights : all) {
    back.read(reinterpret_cast<char*>(weights.data()), static_cast<std::streamsize>(kSize * sizeof(double)));
  }
  EXPECT_TRUE(back.good());
  return all;
}

std::vector<float> train(const Course& course, const OptimizerOptions& options, kernels::Level level) {
  const optim::Optimizer& optimizer = optimizer_of(options);
  std::vector<float> weights = course.weights;
  std::vector<std::vector<float>> state(optimizer.state.size(),
                                        std::vector<float>(kSize, static_cast<float>(initial_state(options))));
  for (std::size_t i = 0; i < kSteps; ++i) {
    const auto arguments = arguments_of(options, course.rates[i], static_cast<std::int64_t>(i) + 1, true);
    const kernels::Update update{.gradient_scale = course.scales[i]};
    (kernels::flat_table(level).*optimizer.kernel)(
        arguments, &update,
        {kSize, weights.data(), state.empty() ? nullptr : state[0].data(), state.size() < 2 ? nullptr : state[1].data(),
         course.gradients[i].data()});
  }
  return weights;
}

TEST(Optimizers, FollowTorchOverFiftySteps) {
  if (!testing::oracle_has("torch")) GTEST_SKIP() << "no torch for Python here";
  Numbers numbers;
  SCOPED_TRACE(numbers.seed());
  const Course course = make_course(numbers);
  const auto expected = ask_torch(course);
  for (std::size_t c = 0; c < std::size(kCases); ++c) {
    for (const kernels::Level level : kernels::levels_here()) {
      const std::vector<float> weights = train(course, kCases[c].options, level);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < kSize; ++i) {
        difference += std::pow(weights[i] - expected[c][i], 2);
        norm += std::pow(expected[c][i], 2);
      }
      EXPECT_LE(std::sqrt(difference / norm), 1e-6) << kCases[c].torch << " " << to_string(level);
    }
  }
}

TEST(Optimizers, DecayOnlyWhatDecays) {
  for (const Case& one : kCases) {
    EXPECT_EQ(arguments_of(one.options, 1, 1, true).weight_decay, one.options.weight_decay);
    EXPECT_EQ(arguments_of(one.options, 1, 1, false).weight_decay, 0);
  }
}

// Frozen inputs of Lion: a direction of zero moves nothing.
TEST(Optimizers, LionStandsStillWithoutGradient) {
  const OptimizerOptions options{.kind = Optimizer::lion};
  for (const kernels::Level level : kernels::levels_here()) {
    std::vector<float> weights(21, 0.5f), momentum(21), gradient(21);
    const kernels::Update update;
    kernels::flat_table(level).lion(arguments_of(options, 0.1, 1, true), &update,
                                    {21, weights.data(), momentum.data(), nullptr, gradient.data()});
    EXPECT_EQ(weights, std::vector<float>(21, 0.5f));
    EXPECT_EQ(momentum, std::vector<float>(21));
  }
}

// A skipped step moves nothing, whatever its gradients are.
TEST(Optimizers, SkipMovesNothing) {
  const kernels::Update skip{.skips = true};
  for (const Case& one : kCases) {
    const optim::Optimizer& optimizer = optimizer_of(one.options);
    for (const kernels::Level level : kernels::levels_here()) {
      std::vector<float> weights(21, 0.5f), first(21, 0.25f), second(21, 0.125f);
      const std::vector<float> gradient(21, std::numeric_limits<float>::quiet_NaN());
      std::vector<bfloat16> rounded(21, bfloat16(2.0f));
      (kernels::flat_table(level).*optimizer.kernel)(
          arguments_of(one.options, 0.1, 1, true), &skip,
          {21, weights.data(), first.data(), second.data(), gradient.data(), DType::f32, rounded.data()});
      EXPECT_EQ(weights, std::vector<float>(21, 0.5f));
      EXPECT_EQ(first, std::vector<float>(21, 0.25f));
      EXPECT_EQ(second, std::vector<float>(21, 0.125f));
      EXPECT_EQ(static_cast<float>(rounded[20]), 2.0f);
    }
  }
}

}  // namespace
}  // namespace trireme::optim
