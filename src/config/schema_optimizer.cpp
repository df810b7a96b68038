// The optimizer's keys.
#include "config/schema_rows.h"

namespace trireme::config {
namespace {

bool has_betas(const Plan& plan) {
  const Optimizer optimizer = plan.training.optimizer;
  return optimizer == Optimizer::adamw || optimizer == Optimizer::adam || optimizer == Optimizer::lion;
}

bool has_eps(const Plan& plan) {
  return plan.training.optimizer != Optimizer::sgd && plan.training.optimizer != Optimizer::lion;
}

bool is_sgd(const Plan& plan) {
  return plan.training.optimizer == Optimizer::sgd;
}

bool is_adagrad(const Plan& plan) {
  return plan.training.optimizer == Optimizer::adagrad;
}

bool decays_weights_apart(const Plan& plan) {
  return plan.training.optimizer == Optimizer::adamw || plan.training.optimizer == Optimizer::lion;
}

constexpr std::string_view kWholeMatrices = "it works on whole matrices; optimizer state is flat slices here";
constexpr std::string_view kWholeParameters =
    "it needs the norm of each whole parameter; optimizer state is flat slices here";

Key optimizer_key() {
  return {.name = "training.optimizer",
          .type = Type::choice,
          .fallback = "adamw",
          .choices = {"adamw", "adam", "sgd", "adagrad", "lion"},
          .value_synonyms = {{"adamw_torch", "adamw"}, {"adamw_torch_fused", "adamw"}},
          .refused = {{"muon", kWholeMatrices},
                      {"shampoo", kWholeMatrices},
                      {"soap", kWholeMatrices},
                      {"adafactor", kWholeMatrices},
                      {"lamb", kWholeParameters},
                      {"lars", kWholeParameters}},
          .aliases = {{"optim", kHuggingFace}},
          .decides = always,
          .field = field<&Plan::training, &TrainingPlan::optimizer>(),
          .doc =
              "adamw: weight decay apart from the gradient; adam: in the gradient, as DeepSpeed's Adam with "
              "adam_w_mode false; sgd, adagrad: as in torch.optim; lion: Chen et al. 2023. adamw and adam keep two "
              "fp32 numbers a parameter, sgd without momentum none, the others one."};
}

}  // namespace

std::vector<Key> optimizer_keys() {
  return {
      optimizer_key(),
      {.name = "training.weight_decay",
       .type = Type::number,
       .derive = [](const Plan& plan) -> Value { return decays_weights_apart(plan) ? 0.1 : 0.0; },
       .rule = "0.1 for adamw and lion, else 0",
       .range = at_least(0),
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::weight_decay>(),
       .doc = "Weight decay: decoupled for adamw and lion, added to the gradient (L2) for the others; norms and biases "
              "have none."},
      {.name = "training.adam_beta1",
       .type = Type::number,
       .fallback = "0.9",
       .range = share_below_one(),
       .aliases = {{"beta1", kNanoGpt}},
       .decides = has_betas,
       .field = field<&Plan::training, &TrainingPlan::adam_beta1>(),
       .doc = "adamw, adam: decay of the first moment. lion: weight of the momentum in the direction."},
      {.name = "training.adam_beta2",
       .type = Type::number,
       .derive = [](const Plan& plan) -> Value { return plan.training.optimizer == Optimizer::lion ? 0.99 : 0.95; },
       .rule = "0.95, for lion 0.99",
       .range = share_below_one(),
       .aliases = {{"beta2", kNanoGpt}},
       .decides = has_betas,
       .field = field<&Plan::training, &TrainingPlan::adam_beta2>(),
       .doc = "adamw, adam: decay of the second moment. lion: of the momentum."},
      {.name = "training.adam_eps",
       .type = Type::number,
       .derive = [](const Plan& plan) -> Value { return is_adagrad(plan) ? 1e-10 : 1e-8; },
       .rule = "1e-8, for adagrad 1e-10",
       .range = above(0),
       .aliases = {{"adam_epsilon", kHuggingFace}, {"eps", kDeepSpeed}},
       .decides = has_eps,
       .field = field<&Plan::training, &TrainingPlan::adam_eps>(),
       .doc = "adamw, adam: added to the root of the second moment; adagrad: to that of the sum of squares."},
      {.name = "training.momentum",
       .type = Type::number,
       .fallback = "0",
       .range = share_below_one(),
       .aliases = {{"sgd_momentum", kMegatron}},
       .decides = is_sgd,
       .field = field<&Plan::training, &TrainingPlan::momentum>(),
       .doc = "sgd: what stays of the sum of earlier gradients; 0: nothing is kept."},
      {.name = "training.nesterov",
       .type = Type::boolean,
       .fallback = "false",
       .decides = is_sgd,
       .field = field<&Plan::training, &TrainingPlan::nesterov>(),
       .doc = "sgd with momentum: step along the gradient plus momentum times the sum."},
      {.name = "training.initial_accumulator_value",
       .type = Type::number,
       .fallback = "0",
       .range = at_least(0),
       .decides = is_adagrad,
       .field = field<&Plan::training, &TrainingPlan::initial_accumulator_value>(),
       .doc = "adagrad: what the sums of squares start with."},
  };
}

}  // namespace trireme::config
