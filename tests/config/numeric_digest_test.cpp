// Which keys the digest of a plan's numbers depends on, and which it does not.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/plan.h"
#include "config/schema.h"
#include "config/schema_rows.h"
#include "helpers.h"

namespace trireme::config {
namespace {

// A plan with one key changed; every other key as in kSmall.
const std::vector<std::pair<std::string, std::string>> kOtherValues = {{"model.hidden_size", "128"},
                                                                       {"model.num_layers", "3"},
                                                                       {"model.num_heads", "2"},
                                                                       {"model.num_key_value_heads", "2"},
                                                                       {"model.head_dim", "32"},
                                                                       {"model.intermediate_size", "256"},
                                                                       {"model.vocab_size", "1000"},
                                                                       {"model.rope_theta", "5e5"},
                                                                       {"model.rms_norm_eps", "1e-6"},
                                                                       {"model.family", "gpt2"},
                                                                       {"model.attention_dropout", "0.1"},
                                                                       {"model.hidden_dropout", "0.1"},
                                                                       {"distributed.strategy", "zero1"},
                                                                       {"distributed.dp_replicate", "2"},
                                                                       {"distributed.dp_shard", "2"},
                                                                       {"model.initializer_range", "0.01"},
                                                                       {"model.tie_word_embeddings", "no"},
                                                                       {"data.sequence_length", "512"},
                                                                       {"data.document_borders", "true"},
                                                                       {"data.split", "train[:9]"},
                                                                       {"data.max_samples", "9"},
                                                                       {"data.packing", "padded"},
                                                                       {"data.add_eos_token", "false"},
                                                                       {"data.add_bos_token", "false"},
                                                                       {"data.shuffle", "false"},
                                                                       {"training.max_steps", "20"},
                                                                       {"training.num_epochs", "2"},
                                                                       {"training.global_batch_size", "4"},
                                                                       {"training.micro_batch_size", "2"},
                                                                       {"training.gradient_accumulation_steps", "2"},
                                                                       {"training.compute_threads", "2"},
                                                                       {"training.device", "cuda"},
                                                                       {"training.reduce_each_micro_batch", "true"},
                                                                       {"training.mixed_precision", "bf16"},
                                                                       {"training.loss_chunk_tokens", "64"},
                                                                       {"training.seed", "1"},
                                                                       {"training.deterministic", "false"},
                                                                       {"training.learning_rate", "1e-3"},
                                                                       {"training.min_learning_rate", "1e-5"},
                                                                       {"training.warmup_steps", "5"},
                                                                       {"training.lr_scheduler", "linear"},
                                                                       {"training.weight_decay", "0"},
                                                                       {"training.adam_beta1", "0.8"},
                                                                       {"training.adam_beta2", "0.99"},
                                                                       {"training.adam_eps", "1e-6"},
                                                                       {"training.warmup_type", "linear"},
                                                                       {"training.warmup_min_learning_rate", "1e-6"},
                                                                       {"training.warmup_min_ratio", "0.1"},
                                                                       {"training.cos_min_ratio", "0.1"},
                                                                       {"training.lr_total_steps", "77"},
                                                                       {"training.cycle_min_learning_rate", "1e-6"},
                                                                       {"training.cycle_first_step_size", "5"},
                                                                       {"training.cycle_second_step_size", "6"},
                                                                       {"training.decay_step_size", "7"},
                                                                       {"training.decay_lr_rate", "0.1"},
                                                                       {"training.range_test_min_learning_rate", "1"},
                                                                       {"training.range_test_step_size", "8"},
                                                                       {"training.range_test_step_rate", "0.1"},
                                                                       {"training.range_test_staircase", "true"},
                                                                       {"training.optimizer", "adam"},
                                                                       {"training.momentum", "0.9"},
                                                                       {"training.nesterov", "true"},
                                                                       {"training.initial_accumulator_value", "0.1"},
                                                                       {"training.gradient_clipping", "0"},
                                                                       {"training.reduce_dtype", "bf16"},
                                                                       {"training.grad_accum_dtype", "bf16"},
                                                                       {"training.master_dtype", "bf16"},
                                                                       {"training.moment_dtype", "bf16"},
                                                                       {"training.gradient_allreduce_op", "sum"},
                                                                       {"training.nonfinite_gradients", "skip"},
                                                                       {"training.loss_scale", "512"},
                                                                       {"training.initial_scale_power", "9"},
                                                                       {"training.loss_scale_window", "50"},
                                                                       {"training.hysteresis", "3"},
                                                                       {"training.consecutive_hysteresis", "true"},
                                                                       {"training.min_loss_scale", "0.5"},
                                                                       {"training.freeze", "[model.embed*]"}};

// fp16's.
bool is_of_loss_scale(std::string_view name) {
  const auto rows = loss_scale_keys();
  return std::any_of(rows.begin(), rows.end(), [&](const Key& key) { return key.name == name; });
}

TEST(NumericDigest, ChangesWithEveryKeyThatDecidesTheNumbers) {
  std::map<std::string, std::string> seen;
  seen[numeric_digest(plan_of(kSmall))] = "none";
  for (const auto& [key, value] : kOtherValues) {
    std::string text = key;
    Overrides overrides = {text.append("=").append(value)};
    if (key == "training.num_epochs") overrides.emplace_back("training.max_steps=");
    if (key == "training.master_dtype") overrides.emplace_back("training.mixed_precision=bf16");
    if (is_of_loss_scale(key)) overrides.emplace_back("training.mixed_precision=fp16");
    // Of a law that it decides.
    for (const char* law : {"warmup_decay", "warmup_cosine", "one_cycle", "lr_range_test"}) {
      const Overrides choice = {std::string("training.lr_scheduler=") + law, "training.cycle_min_learning_rate=1e-5"};
      if (key_named(key).decides(plan_of(kSmall))) break;
      if (key_named(key).decides(plan_of(kSmall, choice))) {
        overrides.push_back(choice[0]);
        if (key != "training.cycle_min_learning_rate") overrides.push_back(choice[1]);
        break;
      }
    }
    if (key == "training.momentum") overrides.emplace_back("training.optimizer=sgd");
    if (key == "training.nesterov") overrides = {text, "training.momentum=0.8", "training.optimizer=sgd"};
    if (key == "training.initial_accumulator_value") overrides.emplace_back("training.optimizer=adagrad");
    if (key == "model.hidden_dropout") overrides.emplace_back("model.family=gpt2");
    if (key.starts_with("data.add_")) overrides.emplace_back("data.packing=padded");
    const std::string digest = numeric_digest(plan_of(kSmall, overrides));
    EXPECT_TRUE(seen.emplace(digest, key).second) << key << " gives the digest of " << seen[digest];
  }
  // A key with a single choice cannot be changed yet; every other one that decides must be in the list above.
  for (const Key& key : keys()) {
    if (key.decides == nullptr || key.choices.size() == 1) continue;
    EXPECT_TRUE(std::any_of(kOtherValues.begin(), kOtherValues.end(),
                            [&](const auto& other) { return other.first == key.name; }))
        << key.name << " decides the numbers and is not tested";
  }
}

TEST(NumericDigest, DoesNotDependOnPathsIntervalsOrderAndIdleKeys) {
  const std::string digest = numeric_digest(plan_of(kSmall));
  for (const char* text : {"name=x",
                           "output_dir=y",
                           "data.path=z",
                           "data.tokenizer=t",
                           "data.num_workers=3",
                           "data.prefetch_factor=5",
                           "data.num_workers=0",
                           "data.eval_split=heldout[:5]",
                           "data.text_field=body",
                           "data.pad_token=x",
                           "data.add_eos_token=no",
                           "training.eval_interval=2",
                           "training.eval_samples=3",
                           "distributed.gradient_slots=4",
                           "distributed.timeout_seconds=9",
                           "distributed.same_host_memory=false",
                           "checkpoint.save_interval=1",
                           "checkpoint.keep=1",
                           "checkpoint.resume=never",
                           "monitor.log_interval=2",
                           "monitor.trace_step=2",
                           "training.num_epochs=9",
                           "model.max_position_embeddings=4096"}) {
    EXPECT_EQ(numeric_digest(plan_of(kSmall, {text})), digest) << text;
  }
  EXPECT_EQ(numeric_digest(plan_of("training: {max_steps: 10}\ndata: {path: other}\n"
                                   "model: {num_heads: 4, num_layers: 2, hidden_size: 64}\n")),
            digest);
  EXPECT_EQ(numeric_digest(plan_of(kSmall, {"training.momentum=0.9"})), digest);
  EXPECT_EQ(numeric_digest(plan_of(kSmall, {"training.initial_accumulator_value=2"})), digest);
  EXPECT_EQ(numeric_digest(plan_of(kSmall, {"training.decay_step_size=2", "training.warmup_type=linear"})), digest);
  for (const char* law : {"one_cycle", "warmup", "lr_range_test"}) {  // blind for the end of the run
    const Overrides short_run = {std::string("training.lr_scheduler=") + law, "training.cycle_min_lr=1e-5"};
    const Overrides long_run = {short_run[0], short_run[1], "training.max_steps=99"};
    EXPECT_EQ(numeric_digest(plan_of(kSmall, short_run)), numeric_digest(plan_of(kSmall, long_run))) << law;
  }
  const Overrides constant = {"training.lr_scheduler=constant"};
  const Overrides longer = {"training.lr_scheduler=constant", "training.max_steps=99"};
  EXPECT_EQ(numeric_digest(plan_of(kSmall, constant)), numeric_digest(plan_of(kSmall, longer)));
}

}  // namespace
}  // namespace trireme::config
