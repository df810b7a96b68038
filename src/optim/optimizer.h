// The optimizers: formulas on flat fp32 runs, as rows of a table. What one keeps is a number of floats an element, so a
// rank that updates a slice holds that slice of them.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "config/plan.h"
#include "kernels/kernels.h"

namespace trireme::optim {

struct OptimizerOptions {
  config::Optimizer kind = config::Optimizer::adamw;
  double beta1 = 0.9, beta2 = 0.999;     // adamw, adam, lion
  double eps = 1e-8;                     // adamw, adam, adagrad
  double weight_decay = 0;               // of storage groups that decay
  double momentum = 0;                   // sgd; 0: it keeps nothing
  bool nesterov = false;                 // sgd
  double initial_accumulator_value = 0;  // adagrad
};

struct Optimizer {
  std::string_view name;  // in checkpoints; sgd with and without momentum are two, for they keep different state
  // The names in checkpoints of the arrays that it keeps beside the weights, in the kernel's order: at most two.
  std::span<const std::string_view> state;
  kernels::OptimizerKernel kernels::FlatTable::*kernel;
};

const Optimizer& optimizer_of(const OptimizerOptions& options);

// What its arrays hold before the first step.
double initial_state(const OptimizerOptions& options);

// What the kernel of step 1, 2, ... takes. decays: whether the elements have weight decay.
kernels::OptimizerArguments arguments_of(const OptimizerOptions& options, double learning_rate, std::int64_t step,
                                         bool decays);

}  // namespace trireme::optim
