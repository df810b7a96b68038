#include "config/checks.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "config/document.h"
#include "config/schema_rows.h"
#include "config/value.h"
#include "config/wrap_classes.h"

namespace trireme::config {
namespace {

class Checker {
 public:
  Checker(Plan& plan, std::string place) : plan_(plan), place_(std::move(place)) {}

  bool is_given(const std::string& key) const {
    const auto origin = plan_.origins.find(key);
    return origin != plan_.origins.end() && !origin->second.is_default;
  }

  // The first of the keys that the user wrote is to blame.
  void require(bool holds, std::initializer_list<const char*> keys, const std::string& message,
               const std::string& remedy) const {
    if (holds) return;
    for (const char* key : keys) {
      if (is_given(key)) throw Error(2104, plan_.origins.at(key).place, message, remedy);
    }
    throw Error(2104, place_, message, remedy);
  }

  void notice(const char* key, const std::string& text) {
    plan_.notices.push_back(plan_.origins.at(key).place + ": " + text);
  }

 private:
  Plan& plan_;
  std::string place_;
};

std::string text(std::int64_t value) {
  return std::to_string(value);
}

// "1, 2, 4 or 8": the divisors of value, at most ten of them, those next to near.
std::string divisors_near(std::int64_t value, std::int64_t near) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    all.push_back(d);
    if (d * d != value) all.push_back(value / d);
  }
  std::sort(all.begin(), all.end());
  constexpr std::ptrdiff_t kMaxShown = 10;
  const std::ptrdiff_t position = std::lower_bound(all.begin(), all.end(), near) - all.begin();
  const std::ptrdiff_t last = std::min<std::ptrdiff_t>(std::ssize(all), std::max(position + kMaxShown / 2, kMaxShown));
  const std::ptrdiff_t first = std::max<std::ptrdiff_t>(0, last - kMaxShown);
  std::string result;
  for (std::ptrdiff_t i = first; i < last; ++i) {
    if (i > first) result += i + 1 == last ? " or " : ", ";
    result += text(all[static_cast<std::size_t>(i)]);
  }
  return result;
}

void check_name(const Plan& plan, const Checker& checker) {
  const auto is_legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  const std::string& name = plan.name;
  checker.require(name.size() <= 128 && !name.starts_with('.') && std::all_of(name.begin(), name.end(), is_legal),
                  {"name"}, "name is " + shown(name) + ", which is no name of a folder that is safe everywhere",
                  "use at most 128 letters, digits, underscores, dashes and dots, and no dot in front");
}

void check_gpt2(const ModelPlan& model, const Checker& checker) {
  checker.require(model.num_key_value_heads == model.num_heads, {"model.num_key_value_heads"},
                  "model.num_key_value_heads is " + text(model.num_key_value_heads) + ", but gpt2 has as many as its " +
                      text(model.num_heads) + " heads",
                  "leave it out");
  checker.require(model.head_dim * model.num_heads == model.hidden_size, {"model.head_dim"},
                  "model.head_dim is " + text(model.head_dim) + ", but gpt2 has hidden_size / num_heads",
                  "leave it out");
  checker.require(model.rope_theta == 10000, {"model.rope_theta"},
                  "model.rope_theta is set, but gpt2 learns its positions", "leave it out, or use family: llama");
}

void check_model(const Plan& plan, const Checker& checker) {
  const ModelPlan& model = plan.model;
  if (!model.path.empty()) return;  // by fill_from_model()
  if (model.family == "gpt2") check_gpt2(model, checker);
  checker.require(model.family == "gpt2" || model.hidden_dropout == 0, {"model.hidden_dropout"},
                  "model.hidden_dropout is set, but " + model.family + " has no dropout of its residual stream",
                  "leave it out, use model.attention_dropout, or family: gpt2");
  checker.require(checker.is_given("model.head_dim") || model.hidden_size % model.num_heads == 0,
                  {"model.num_heads", "model.hidden_size"},
                  "model.num_heads is " + text(model.num_heads) + ", but hidden_size " + text(model.hidden_size) +
                      " is not a multiple of it",
                  "use num_heads " + divisors_near(model.hidden_size, model.num_heads) + ", or give head_dim");
  checker.require(model.num_heads % model.num_key_value_heads == 0, {"model.num_key_value_heads", "model.num_heads"},
                  "model.num_key_value_heads is " + text(model.num_key_value_heads) + ", but num_heads " +
                      text(model.num_heads) + " is not a multiple of it",
                  "use num_key_value_heads " + divisors_near(model.num_heads, model.num_key_value_heads));
  checker.require(model.head_dim % 2 == 0, {"model.head_dim", "model.num_heads", "model.hidden_size"},
                  "model.head_dim is " + text(model.head_dim) + ", which is odd",
                  "rotary positions turn pairs: give an even head_dim, or another hidden_size or num_heads");
  checker.require(plan.data.sequence_length <= model.max_position_embeddings,
                  {"data.sequence_length", "model.max_position_embeddings"},
                  "data.sequence_length is " + text(plan.data.sequence_length) + ", above max_position_embeddings " +
                      text(model.max_position_embeddings),
                  "lower sequence_length or raise model.max_position_embeddings");
}

void check_end(const Plan& plan, const std::string& place, Checker& checker) {
  const TrainingPlan& training = plan.training;
  if (!training.max_steps && !training.num_epochs) {
    throw Error(2106, place, "neither training.max_steps nor training.num_epochs is set",
                "say how long to train: training.max_steps=1000, or training.num_epochs=1");
  }
  if (training.max_steps && training.num_epochs) {
    checker.notice("training.num_epochs", "training.max_steps " + text(*training.max_steps) + " wins over num_epochs " +
                                              text(*training.num_epochs));
  }
  if (training.max_steps && training.warmup_steps > *training.max_steps) {  // fine for a short trial of a long plan
    checker.notice("training.max_steps", "training.max_steps " + text(*training.max_steps) + " is below warmup_steps " +
                                             text(training.warmup_steps) +
                                             ": the learning rate does not reach its peak");
  }
}

void check_batch(const Plan& plan, Checker& checker) {
  const TrainingPlan& training = plan.training;
  if (!training.global_batch_size || !training.micro_batch_size) return;
  const std::int64_t batch = *training.global_batch_size, micro = *training.micro_batch_size;
  checker.require(batch % micro == 0, {"training.micro_batch_size", "training.global_batch_size"},
                  "training.micro_batch_size is " + text(micro) + ", but global_batch_size " + text(batch) + " (" +
                      plan.origins.at("training.global_batch_size").place + ") is not a multiple of it",
                  text(batch) + " = micro_batch_size x M needs micro_batch_size " + divisors_near(batch, micro));
}

void check_offload(const Plan& plan, Checker& checker) {
  using enum Strategy;
  const DistributedPlan& d = plan.distributed;
  const bool shards =
      d.strategy == zero3 || d.strategy == full_shard || d.strategy == shard_grad_op || d.strategy == hybrid_shard;
  const bool streams = d.offload_param == Offload::cpu;
  checker.require(!streams || shards, {"distributed.offload_param", "distributed.strategy"},
                  "distributed.offload_param is cpu, but distributed.strategy does not shard parameters",
                  "use distributed.strategy=full_shard, or distributed.offload_optimizer=cpu alone");
  checker.require(!streams || d.offload_optimizer == Offload::cpu,
                  {"distributed.offload_optimizer", "distributed.offload_param"},
                  "distributed.offload_param is cpu, but distributed.offload_optimizer is none",
                  "parameters are updated where they are: leave offload_optimizer out, or set it to cpu");
  checker.require(!plan.training.cpu_checkpointing || plan.training.gradient_checkpointing == Recompute::full,
                  {"training.cpu_checkpointing", "training.gradient_checkpointing"},
                  "training.cpu_checkpointing is true, but no block computes its forward again from its input",
                  "set training.gradient_checkpointing=full");
}

void check_data(const Plan& plan, Checker& checker) {
  const DataPlan& data = plan.data;
  const bool padded = data.packing == Packing::padded;
  for (const char* key : {"data.pad_token", "data.add_bos_token", "data.add_eos_token"}) {
    if (!padded && checker.is_given(key)) {
      checker.notice(key, std::string(key) + " has no effect: it is for data.packing=padded");
    }
  }
  if (padded && checker.is_given("data.document_borders") && data.document_borders) {
    checker.notice("data.document_borders", "data.document_borders has no effect: a padded sample is one document");
  }
  if (data.num_workers == 0 && checker.is_given("data.prefetch_factor")) {
    checker.notice("data.prefetch_factor", "data.prefetch_factor has no effect without data.num_workers");
  }
}

std::string choice_of(const Plan& plan, std::string_view key) {
  const Key& choice = key_named(key);
  return std::get<std::string>(choice.field.get(plan, choice));
}

// Says which of the rows that are given decide nothing, as `name` is what was chosen. A value that an idle key would
// have anyway goes without a word: resolved configurations give every key.
void tell_idle(const Plan& plan, Checker& checker, const std::vector<Key>& rows, const std::string& name) {
  const std::string idle = " has no effect: " + name + " does not use it";
  for (const Key& key : rows) {
    const std::string key_name(key.name);
    if (key.decides(plan) || !checker.is_given(key_name)) continue;
    const Value standard = key.optional ? Value() : key.derive == nullptr ? parse_default(key) : key.derive(plan);
    if (key.field.get(plan, key) == standard) continue;
    checker.notice(key_name.c_str(), key_name + idle);
  }
}

void check_wrapping(const Plan& plan, Checker& checker) {
  const auto tell = [&](const char* key, WrapPolicy user, const char* policy, bool says_something) {
    if (plan.distributed.auto_wrap == user || !checker.is_given(key) || !says_something) return;
    checker.notice(key, std::string(key) + " has no effect: it is for distributed.auto_wrap=" + policy);
  };
  const Key& least = key_named("distributed.min_num_params");
  const bool differs = least.field.get(plan, least) != parse_default(least) && plan.distributed.min_num_params != 0;
  tell("distributed.min_num_params", WrapPolicy::size, "size", differs);
  tell("distributed.wrap_names", WrapPolicy::by_name, "by_name", !plan.distributed.wrap_names.empty());
}

void check_optimizer(const Plan& plan, Checker& checker) {
  const TrainingPlan& training = plan.training;
  checker.require(training.momentum > 0 || !training.nesterov, {"training.nesterov", "training.momentum"},
                  "training.nesterov is true, but training.momentum is 0",
                  "set training.momentum, for instance to 0.9");
  tell_idle(plan, checker, optimizer_keys(), choice_of(plan, "training.optimizer"));
}

void check_law(const Plan& plan, Checker& checker) {
  const TrainingPlan& training = plan.training;
  const LearningRateLaw law = training.lr_scheduler;
  checker.require(law != LearningRateLaw::one_cycle || plan.law.cycle_min_learning_rate, {"training.lr_scheduler"},
                  "training.lr_scheduler is one_cycle, but training.cycle_min_learning_rate is not set",
                  "say from where the cycle rises to learning_rate: training.cycle_min_learning_rate=1e-5");
  const bool falls = law == LearningRateLaw::warmup_decay || law == LearningRateLaw::warmup_cosine;
  if (falls && plan.law.lr_total_steps.value_or(training.warmup_steps) < training.warmup_steps) {
    checker.notice("training.lr_total_steps", "training.lr_total_steps " + text(*plan.law.lr_total_steps) +
                                                  " is below warmup_steps " + text(training.warmup_steps) +
                                                  ": the rate falls at once after the warm-up");
  }
  checker.require(
      training.min_learning_rate <= training.learning_rate, {"training.min_learning_rate", "training.learning_rate"},
      "training.min_learning_rate is above learning_rate", "lower it: the rate falls from learning_rate to it");
  tell_idle(plan, checker, law_keys(), choice_of(plan, "training.lr_scheduler"));
}

void check_precision(const Plan& plan, Checker& checker) {
  const PrecisionPlan& precision = plan.precision;
  const std::string mixed = choice_of(plan, "training.mixed_precision");
  const std::string given = precision.param_dtype ? choice_of(plan, "training.param_dtype") : "unset";
  const MixedPrecision param = precision.param_dtype.value_or(plan.training.mixed_precision);
  checker.require(param == plan.training.mixed_precision, {"training.param_dtype", "training.mixed_precision"},
                  "training.param_dtype is " + given + ", but mixed_precision is " + mixed +
                      ", and both are the type of the computation",
                  "leave one of them out");
  checker.require(precision.master_dtype == ElementType::fp32 || param == MixedPrecision::bf16,
                  {"training.master_dtype", "training.mixed_precision"},
                  "training.master_dtype is bf16, but mixed_precision is " + mixed +
                      ": weights would have more digits than their masters, or a smaller range",
                  "set mixed_precision to bf16, or leave master_dtype out");
  const double scale = precision.loss_scale.value_or(0);
  checker.require(
      scales_loss(plan) || scale == 0 || scale == 1, {"training.loss_scale"},
      "training.loss_scale is " + to_text(scale) + ", but only fp16 needs one (mixed_precision is " + mixed + ")",
      "leave it out: the small gradients of bf16 and fp32 do not become zero");
  const bool dynamic = scales_loss(plan) && scale == 0;
  checker.require(!dynamic || precision.nonfinite_gradients == NonFiniteGradients::skip,
                  {"training.nonfinite_gradients"},
                  "training.nonfinite_gradients is stop, but a dynamic loss scale is found by steps that overflow",
                  "leave it out, or set training.loss_scale to a fixed scale");
  checker.require(!dynamic || std::ldexp(1.0, precision.initial_scale_power) >= precision.min_loss_scale,
                  {"training.min_loss_scale", "training.initial_scale_power"},
                  "training.min_loss_scale is " + to_text(precision.min_loss_scale) +
                      ", above the first scale of 2 to the power of " + text(precision.initial_scale_power),
                  "lower it, or raise training.initial_scale_power");
  if (precision.reduce_dtype != ElementType::fp32 && sums_once_a_step(plan)) {
    checker.notice("training.reduce_dtype", "training.reduce_dtype rounds gradients, but sends no fewer bytes: " +
                                                choice_of(plan, "distributed.strategy") +
                                                " sends sums once a step, in grad_accum_dtype");
  }
  tell_idle(plan, checker, loss_scale_keys(), scales_loss(plan) ? "a fixed loss_scale" : "mixed_precision " + mixed);
}

}  // namespace

void check_plan(Plan& plan, const std::string& place) {
  Checker checker(plan, place);
  check_name(plan, checker);
  check_model(plan, checker);
  check_end(plan, place, checker);
  check_batch(plan, checker);
  check_offload(plan, checker);
  check_data(plan, checker);
  check_wrapping(plan, checker);
  if (plan.model.path.empty()) check_wrap_classes(plan);
  check_optimizer(plan, checker);
  check_law(plan, checker);
  check_precision(plan, checker);
}

}  // namespace trireme::config
