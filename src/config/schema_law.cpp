// The keys of the learning rate and its law.
#include "config/schema_rows.h"

namespace trireme::config {
namespace {

using enum LearningRateLaw;

template <LearningRateLaw... laws>
bool is_law(const Plan& plan) {
  return ((plan.training.lr_scheduler == laws) || ...);
}

bool has_warmup_type(const Plan& plan) {
  return is_law<warmup, warmup_decay, warmup_cosine>(plan);
}

std::vector<Key> rate_keys() {
  return {
      {.name = "training.learning_rate",
       .type = Type::number,
       .fallback = "3e-4",
       .range = at_least(0),
       .aliases = {{"lr", kMegatron}, {"warmup_max_lr", kDeepSpeed}, {"cycle_max_lr", kDeepSpeed}},
       .decides = [](const Plan& plan) { return !is_law<lr_range_test>(plan); },
       .field = field<&Plan::training, &TrainingPlan::learning_rate>(),
       .doc = "Peak learning rate."},
      {.name = "training.min_learning_rate",
       .type = Type::number,
       .fallback = "0",
       .range = at_least(0),
       .aliases = {{"min_lr", kMegatron}},
       .decides = is_law<linear, cosine>,
       .field = field<&Plan::training, &TrainingPlan::min_learning_rate>(),
       .doc = "Learning rate at the last step of the linear and cosine laws."},
      {.name = "training.warmup_steps",
       .type = Type::integer,
       .derive = [](const Plan& plan) -> Value { return std::int64_t{has_warmup_type(plan) ? 1000 : 0}; },
       .rule = "1000 for warmup, warmup_decay and warmup_cosine, else 0",
       .range = from(0, kMaxSteps),
       .aliases = {{"num_warmup_steps", kAccelerate},
                   {"warmup_num_steps", kDeepSpeed},
                   {"warmup_iters", kNanoGpt},
                   {"lr_warmup_iters", kMegatron}},
       .decides = [](const Plan& plan) { return !is_law<one_cycle, lr_range_test>(plan); },
       .field = field<&Plan::training, &TrainingPlan::warmup_steps>(),
       .doc = "Steps of the rise to learning_rate; from 0 and linear with constant, linear and cosine."},
      {.name = "training.lr_scheduler",
       .type = Type::choice,
       .fallback = "cosine",
       .choices = {"constant", "linear", "cosine", "warmup", "warmup_decay", "warmup_cosine", "one_cycle",
                   "lr_range_test"},
       .value_synonyms = {{"constant_with_warmup", "constant"},
                          {"warmuplr", "warmup"},
                          {"warmupdecaylr", "warmup_decay"},
                          {"warmupcosinelr", "warmup_cosine"},
                          {"onecycle", "one_cycle"},
                          {"lrrangetest", "lr_range_test"}},
       .aliases = {{"lr_scheduler_type", kHuggingFace}, {"lr_decay_style", kMegatron}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::lr_scheduler>(),
       .doc = "The law of the learning rate: what it does after the warm-up, or one of DeepSpeed's, step for step: "
              "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle (of the learning rate alone), LRRangeTest."},
  };
}

std::vector<Key> warmup_keys() {
  return {
      {.name = "training.warmup_type",
       .type = Type::choice,
       .fallback = "log",
       .choices = {"log", "linear"},
       .decides = has_warmup_type,
       .field = field<&Plan::law, &LawPlan::warmup_type>(),
       .doc = "warmup, warmup_decay, warmup_cosine: how the rate rises."},
      {.name = "training.warmup_min_learning_rate",
       .type = Type::number,
       .fallback = "0",
       .range = at_least(0),
       .aliases = {{"warmup_min_lr", kDeepSpeed}},
       .decides = is_law<warmup, warmup_decay>,
       .field = field<&Plan::law, &LawPlan::warmup_min_learning_rate>(),
       .doc = "warmup, warmup_decay: where the rise starts, and where the decay ends."},
      {.name = "training.warmup_min_ratio",
       .type = Type::number,
       .fallback = "0",
       .range = from(0, 1),
       .decides = is_law<warmup_cosine>,
       .field = field<&Plan::law, &LawPlan::warmup_min_ratio>(),
       .doc = "warmup_cosine: where the rise starts, as a share of learning_rate; the first step has a rate of 0."},
      {.name = "training.cos_min_ratio",
       .type = Type::number,
       .fallback = "1e-4",
       .range = from(0, 1),
       .decides = is_law<warmup_cosine>,
       .field = field<&Plan::law, &LawPlan::cos_min_ratio>(),
       .doc = "warmup_cosine: where the cosine ends, as a share of learning_rate."},
      {.name = "training.lr_total_steps",
       .type = Type::integer,
       .optional = true,
       .range = from(1, kMaxSteps),
       .aliases = {{"total_num_steps", kDeepSpeed}},
       .decides = is_law<warmup_decay, warmup_cosine>,
       .field = field<&Plan::law, &LawPlan::lr_total_steps>(),
       .doc = "warmup_decay, warmup_cosine: the step at which the rate has fallen; unset: the last of the run."},
  };
}

std::vector<Key> cycle_keys() {
  return {
      {.name = "training.cycle_min_learning_rate",
       .type = Type::number,
       .optional = true,
       .range = at_least(0),
       .aliases = {{"cycle_min_lr", kDeepSpeed}},
       .decides = is_law<one_cycle>,
       .field = field<&Plan::law, &LawPlan::cycle_min_learning_rate>(),
       .doc = "one_cycle, which needs it: the rate before and after the cycle; learning_rate is its top."},
      {.name = "training.cycle_first_step_size",
       .type = Type::integer,
       .fallback = "2000",
       .range = from(1, kMaxSteps),
       .decides = is_law<one_cycle>,
       .field = field<&Plan::law, &LawPlan::cycle_first_step_size>(),
       .doc = "one_cycle: steps of the rise."},
      {.name = "training.cycle_second_step_size",
       .type = Type::integer,
       .derive = [](const Plan& plan) -> Value { return plan.law.cycle_first_step_size; },
       .rule = "cycle_first_step_size",
       .range = from(1, kMaxSteps),
       .decides = is_law<one_cycle>,
       .field = field<&Plan::law, &LawPlan::cycle_second_step_size>(),
       .doc = "one_cycle: steps of the fall."},
      {.name = "training.decay_step_size",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, kMaxSteps),
       .decides = is_law<one_cycle>,
       .field = field<&Plan::law, &LawPlan::decay_step_size>(),
       .doc = "one_cycle: steps in which the divisor of the rate after the cycle grows by decay_lr_rate; 0: no decay."},
      {.name = "training.decay_lr_rate",
       .type = Type::number,
       .fallback = "0",
       .range = at_least(0),
       .decides = is_law<one_cycle>,
       .field = field<&Plan::law, &LawPlan::decay_lr_rate>(),
       .doc = "one_cycle: see decay_step_size."},
  };
}

std::vector<Key> range_test_keys() {
  return {
      {.name = "training.range_test_min_learning_rate",
       .type = Type::number,
       .fallback = "1e-3",
       .range = at_least(0),
       .aliases = {{"lr_range_test_min_lr", kDeepSpeed}},
       .decides = is_law<lr_range_test>,
       .field = field<&Plan::law, &LawPlan::range_test_min_learning_rate>(),
       .doc = "lr_range_test: the first rate."},
      {.name = "training.range_test_step_size",
       .type = Type::integer,
       .fallback = "2000",
       .range = from(1, kMaxSteps),
       .aliases = {{"lr_range_test_step_size", kDeepSpeed}},
       .decides = is_law<lr_range_test>,
       .field = field<&Plan::law, &LawPlan::range_test_step_size>(),
       .doc = "lr_range_test: steps in which the rate grows by range_test_step_rate times the first."},
      {.name = "training.range_test_step_rate",
       .type = Type::number,
       .fallback = "1",
       .range = at_least(0),
       .aliases = {{"lr_range_test_step_rate", kDeepSpeed}},
       .decides = is_law<lr_range_test>,
       .field = field<&Plan::law, &LawPlan::range_test_step_rate>(),
       .doc = "lr_range_test: see range_test_step_size."},
      {.name = "training.range_test_staircase",
       .type = Type::boolean,
       .fallback = "false",
       .aliases = {{"lr_range_test_staircase", kDeepSpeed}},
       .decides = is_law<lr_range_test>,
       .field = field<&Plan::law, &LawPlan::range_test_staircase>(),
       .doc = "lr_range_test: grow at once, after each range_test_step_size steps."},
  };
}

}  // namespace

std::vector<Key> law_keys() {
  std::vector<Key> rows;
  for (const auto& part : {rate_keys(), warmup_keys(), cycle_keys(), range_test_keys()}) append(rows, part);
  return rows;
}

bool law_knows_the_end(const Plan& plan) {
  if (is_law<warmup_decay, warmup_cosine>(plan)) return !plan.law.lr_total_steps;
  return is_law<linear, cosine>(plan);
}

}  // namespace trireme::config
