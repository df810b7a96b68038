#include "optim/optimizer.h"

#include <cmath>

namespace trireme::optim {

namespace {

constexpr std::string_view kMoments[] = {"exp_avg", "exp_avg_sq"};
constexpr std::string_view kMomentum[] = {"momentum_buffer"};
constexpr std::string_view kSum[] = {"sum"};

// In the order of config::Optimizer.
constexpr Optimizer kOptimizers[] = {{"adamw", kMoments, &kernels::FlatTable::adamw},
                                     {"adam", kMoments, &kernels::FlatTable::adam},
                                     {"sgd", {}, &kernels::FlatTable::sgd},
                                     {"adagrad", kSum, &kernels::FlatTable::adagrad},
                                     {"lion", std::span(kMoments).first(1), &kernels::FlatTable::lion}};
constexpr Optimizer kSgdWithMomentum = {"sgd with momentum", kMomentum, &kernels::FlatTable::sgd};

}  // namespace

const Optimizer& optimizer_of(const OptimizerOptions& options) {
  if (options.kind == config::Optimizer::sgd && options.momentum > 0) return kSgdWithMomentum;
  return kOptimizers[static_cast<std::size_t>(options.kind)];
}

double initial_state(const OptimizerOptions& options) {
  return options.kind == config::Optimizer::adagrad ? options.initial_accumulator_value : 0.0;
}

kernels::OptimizerArguments arguments_of(const OptimizerOptions& options, double learning_rate, std::int64_t step,
                                         bool decays) {
  const auto t = static_cast<double>(step);
  return {.learning_rate = learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = decays ? options.weight_decay : 0.0,
          .bias_correction1 = 1.0 - std::pow(options.beta1, t),
          .bias_correction2 = 1.0 - std::pow(options.beta2, t),
          .momentum = options.momentum,
          .nesterov = options.nesterov};
}

}  // namespace trireme::optim
