// The keys of the types that gradients are computed, sent and added in, and of what happens where they overflow.
#include <string>

#include "config/schema_rows.h"

namespace trireme::config {
namespace {

bool finds_its_scale(const Plan& plan) {
  return scales_loss(plan) && plan.precision.loss_scale.value_or(0) == 0;
}

std::vector<Synonym> names_of_types() {
  return {{"float32", "fp32"}, {"32", "fp32"}, {"bfloat16", "bf16"}, {"bfp16", "bf16"}, {"float16", "fp16"}};
}

std::vector<Key> dtype_keys() {
  return {
      {.name = "training.param_dtype",
       .type = Type::choice,
       .optional = true,
       .choices = {"fp32", "bf16", "fp16"},
       .value_synonyms = names_of_types(),
       .aliases = {{"mixed_precision_param", kTitan}},
       .field = field<&Plan::precision, &PrecisionPlan::param_dtype>(),
       .doc = "mixed_precision by the name that says what it decides: the type of the weights that units read, and of "
              "the computation."},
      {.name = "training.reduce_dtype",
       .type = Type::choice,
       .fallback = "fp32",
       .choices = {"fp32", "bf16", "fp16"},
       .value_synonyms = names_of_types(),
       .aliases = {{"communication_data_type", kDeepSpeed},
                   {"distributed.communication_data_type", kDeepSpeed},
                   {"mixed_precision_reduce", kTitan}},
       .decides = [](const Plan& plan) { return plan.precision.reduce_dtype != ElementType::fp32; },
       .field = field<&Plan::precision, &PrecisionPlan::reduce_dtype>(),
       .doc = "Each micro-batch's gradient is rounded to this type before it is added, on any number of ranks, and is "
              "sent in it; fp32: it is added as it was computed. Sums that ddp and zero1 send once a step travel in "
              "grad_accum_dtype."},
      {.name = "training.grad_accum_dtype",
       .type = Type::choice,
       .fallback = "fp32",
       .choices = {"fp32", "bf16"},
       .value_synonyms = names_of_types(),
       .refused = {{"fp16", "sums of gradients leave its range: use bf16 or fp32"}},
       .decides = [](const Plan& plan) { return plan.precision.grad_accum_dtype != ElementType::fp32; },
       .field = field<&Plan::precision, &PrecisionPlan::grad_accum_dtype>(),
       .doc = "Type of the gradient sums. bf16: two bytes a parameter fewer, and each addition is rounded to it."},
      {.name = "training.master_dtype",
       .type = Type::choice,
       .fallback = "fp32",
       .choices = {"fp32", "bf16"},
       .value_synonyms = names_of_types(),
       .refused = {{"fp16", "updates leave its range: use bf16 or fp32"}},
       .decides = [](const Plan& plan) { return plan.precision.master_dtype != ElementType::fp32; },
       .field = field<&Plan::precision, &PrecisionPlan::master_dtype>(),
       .doc = "Type of the master weights. bf16: the weights that units read are the masters, four bytes a parameter "
              "fewer; needs mixed_precision=bf16. What an update adds is rounded stochastically."},
      {.name = "training.moment_dtype",
       .type = Type::choice,
       .fallback = "fp32",
       .choices = {"fp32", "bf16"},
       .value_synonyms = names_of_types(),
       .refused = {{"fp16", "squares of gradients leave its range: use bf16 or fp32"}},
       .decides = [](const Plan& plan) { return plan.precision.moment_dtype != ElementType::fp32; },
       .field = field<&Plan::precision, &PrecisionPlan::moment_dtype>(),
       .doc = "Type of the optimizer's arrays. bf16: two bytes a parameter and array fewer, rounded stochastically."},
      {.name = "training.gradient_allreduce_op",
       .type = Type::choice,
       .fallback = "mean",
       .choices = {"mean", "sum"},
       .value_synonyms = {{"average", "mean"}, {"avg", "mean"}},
       .decides = [](const Plan& plan) { return plan.precision.gradient_allreduce_op == GradientOp::sum; },
       .field = field<&Plan::precision, &PrecisionPlan::gradient_allreduce_op>(),
       .doc =
           "mean: the gradient of the mean loss over the global batch. sum: that times the data ranks, as where each "
           "rank's mean is added up; norms and clipping see the larger gradients."},
  };
}

std::vector<Key> overflow_keys() {
  return {
      {.name = "training.nonfinite_gradients",
       .type = Type::choice,
       .derive = [](const Plan& plan) -> Value {
         return scales_loss(plan) ? std::string("skip") : std::string("stop");
       },
       .rule = "skip in fp16, else stop",
       .choices = {"stop", "skip"},
       .decides = [](const Plan& plan) { return plan.precision.nonfinite_gradients == NonFiniteGradients::skip; },
       .field = field<&Plan::precision, &PrecisionPlan::nonfinite_gradients>(),
       .doc =
           "What a step does whose gradients are not finite on some rank. stop: the run ends, and says which tensor; "
           "skip: neither weights nor optimizer state nor the learning rate move, the next step takes the next "
           "samples."},
  };
}

}  // namespace

std::vector<Key> loss_scale_keys() {
  return {
      {.name = "training.loss_scale",
       .type = Type::number,
       .optional = true,
       .range = at_least(0),
       .decides = scales_loss,
       .field = field<&Plan::precision, &PrecisionPlan::loss_scale>(),
       .doc = "fp16: what the loss is multiplied with, and the gradients are divided by, so that small ones do not "
              "become zero. Unset or 0: dynamic, by DeepSpeed's rules and the keys below."},
      {.name = "training.initial_scale_power",
       .type = Type::integer,
       .fallback = "16",
       .range = from(0, 100),
       .decides = finds_its_scale,
       .field = field<&Plan::precision, &PrecisionPlan::initial_scale_power>(),
       .doc = "The dynamic scale begins with 2 to this power."},
      {.name = "training.loss_scale_window",
       .type = Type::integer,
       .fallback = "1000",
       .range = from(1, kMaxSteps),
       .decides = finds_its_scale,
       .field = field<&Plan::precision, &PrecisionPlan::loss_scale_window>(),
       .doc = "It doubles after so many steps in a row, and one more, whose gradients were finite."},
      {.name = "training.hysteresis",
       .type = Type::integer,
       .fallback = "2",
       .range = from(1, 1e6),
       .decides = finds_its_scale,
       .field = field<&Plan::precision, &PrecisionPlan::hysteresis>(),
       .doc = "It halves at this overflow, and then at each until it has doubled again."},
      {.name = "training.consecutive_hysteresis",
       .type = Type::boolean,
       .fallback = "false",
       .decides = finds_its_scale,
       .field = field<&Plan::precision, &PrecisionPlan::consecutive_hysteresis>(),
       .doc = "Overflows count towards hysteresis only where no good step lies between."},
      {.name = "training.min_loss_scale",
       .type = Type::number,
       .fallback = "1",
       .range = above(0),
       .decides = finds_its_scale,
       .field = field<&Plan::precision, &PrecisionPlan::min_loss_scale>(),
       .doc = "It never falls below; an overflow there ends the run with exit code 93."},
  };
}

std::vector<Key> precision_keys() {
  std::vector<Key> rows = dtype_keys();
  append(rows, overflow_keys());
  append(rows, loss_scale_keys());
  return rows;
}

}  // namespace trireme::config
