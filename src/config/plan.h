// The plan: the resolved configuration, typed, every value with its origin. Made by load_plan() before any process
// starts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/wrapping.h"

namespace trireme::config {

enum class Strategy : std::uint8_t { ddp, no_shard, zero1, zero2, zero3, shard_grad_op, full_shard, hybrid_shard };
enum class Device : std::uint8_t { automatic, cpu, cuda };
enum class MixedPrecision : std::uint8_t { no, bf16, fp16 };
enum class Recompute : std::uint8_t { none, selective, full };
enum class ElementType : std::uint8_t { fp32, bf16, fp16 };
enum class GradientOp : std::uint8_t { mean, sum };
enum class NonFiniteGradients : std::uint8_t { stop, skip };
enum class Offload : std::uint8_t { none, cpu };
enum class Packing : std::uint8_t { packed, padded };
enum class LearningRateLaw : std::uint8_t {
  constant,
  linear,
  cosine,
  warmup,
  warmup_decay,
  warmup_cosine,
  one_cycle,
  lr_range_test
};
enum class WarmupType : std::uint8_t { logarithmic, linear };
enum class Optimizer : std::uint8_t { adamw, adam, sgd, adagrad, lion };
enum class Resume : std::uint8_t { automatic, must, never };
enum class Receiver : std::uint8_t { tensorboard };

struct ModelPlan {
  // A Hugging Face folder, or org/name of one in the local cache: weights and sizes come from it. The sizes below that
  // the configuration does not give are then unset until fill_from_model().
  std::string path;
  std::string family;  // "llama", "gpt2"; with path the model_type of its config.json
  std::int64_t hidden_size, intermediate_size, num_layers, num_heads, num_key_value_heads, head_dim,
      max_position_embeddings;
  std::optional<std::int64_t> vocab_size;  // unset: the data's tokenizer decides
  double rope_theta, rms_norm_eps, initializer_range;
  double attention_dropout, hidden_dropout;  // probabilities
  bool tie_word_embeddings;
  bool operator==(const ModelPlan&) const = default;
};

struct DataPlan {
  std::filesystem::path path;       // a folder that `trireme data prepare` wrote
  std::filesystem::path tokenizer;  // optional: must have the digest in the data's manifest
  std::string text_field;           // optional: must be the field that was prepared
  std::string split, eval_split;    // "train", "train[:1000]"
  std::optional<std::int64_t> max_samples;
  std::int64_t sequence_length;
  Packing packing;
  bool document_borders;  // packed: attention, positions and loss stop at them
  bool add_bos_token;     // padded: the sample begins with what the tokenizer puts before a text
  bool add_eos_token;     // padded: the end-of-document mark is part of the sample
  std::string pad_token;  // padded; optional: the tokenizer's, else the end-of-document mark
  bool shuffle;
  int num_workers, prefetch_factor;  // 0 workers: the thread that trains makes the batches
  bool operator==(const DataPlan&) const = default;
};

struct TrainingPlan {
  std::optional<std::int64_t> max_steps;  // wins over num_epochs, said at start
  std::optional<std::int64_t> num_epochs;
  // Samples of a step, of a micro-batch, and micro-batches of a rank: what is unset follows (train::batch_of).
  std::optional<std::int64_t> global_batch_size, micro_batch_size, gradient_accumulation_steps;
  bool reduce_each_micro_batch;
  int compute_threads;
  Device device;
  double learning_rate, min_learning_rate;
  std::int64_t warmup_steps;
  LearningRateLaw lr_scheduler;
  Optimizer optimizer;
  double weight_decay, adam_beta1, adam_beta2, adam_eps;
  double momentum;  // sgd; 0: none
  bool nesterov;
  double initial_accumulator_value;  // adagrad
  double gradient_clipping;          // 0: off
  MixedPrecision mixed_precision;
  std::vector<std::string> freeze;  // patterns of tensors that are not trained
  Recompute gradient_checkpointing;
  int recompute_every;                        // full: every k-th block
  bool cpu_checkpointing;                     // full: their inputs in host memory
  std::optional<std::int64_t> memory_budget;  // bytes of a rank; unset, 0: none
  std::optional<std::int64_t> loss_chunk_tokens;
  std::uint64_t seed;
  bool deterministic;                        // on devices too, at a cost
  std::int64_t eval_interval;                // steps; 0: at the end only
  std::optional<std::int64_t> eval_samples;  // unset: the whole held-out split
  bool operator==(const TrainingPlan&) const = default;
};

// The types of gradients on their way, and what happens where they overflow. The keys stand under training.
struct PrecisionPlan {
  std::optional<MixedPrecision> param_dtype;  // another name of mixed_precision; equal to it where both are given
  ElementType reduce_dtype, grad_accum_dtype, master_dtype, moment_dtype;
  GradientOp gradient_allreduce_op;
  NonFiniteGradients nonfinite_gradients;
  // fp16:
  std::optional<double> loss_scale;  // unset, 0: dynamic, by the rest
  int initial_scale_power;
  std::int64_t loss_scale_window;
  int hysteresis;
  bool consecutive_hysteresis;
  double min_loss_scale;
  bool operator==(const PrecisionPlan&) const = default;
};

// What single laws need beside the rate, the warm-up's length and the end. The keys stand under training.
struct LawPlan {
  WarmupType warmup_type;
  double warmup_min_learning_rate, warmup_min_ratio, cos_min_ratio;
  std::optional<std::int64_t> lr_total_steps;  // unset: the run's
  std::optional<double> cycle_min_learning_rate;
  std::int64_t cycle_first_step_size, cycle_second_step_size, decay_step_size;
  double decay_lr_rate;
  double range_test_min_learning_rate;
  std::int64_t range_test_step_size;
  double range_test_step_rate;
  bool range_test_staircase;
  bool operator==(const LawPlan&) const = default;
};

struct DistributedPlan {
  Strategy strategy;
  std::optional<std::int64_t> num_processes;  // how many ranks the run must have
  // The ranks are dp_replicate sets of dp_shard neighbours. Unset: what the other leaves, or one set.
  std::optional<std::int64_t> dp_replicate, dp_shard;
  WrapPolicy auto_wrap;
  std::int64_t min_num_params;            // size: elements of a set of units
  std::vector<std::string> wrap_names;    // by_name: patterns of unit names
  std::vector<std::string> wrap_classes;  // transformer: classes in transformers, one of them the model's blocks
  // Most elements of a storage group of several parameters: the smaller of what is set.
  std::optional<std::int64_t> bucket_size, allgather_bucket_size;
  std::int64_t persistence_threshold;  // elements; storage groups of fewer keep whole parameters
  int gather_ahead;                    // units
  std::int64_t reuse_distance;         // elements
  std::int64_t max_live_parameters;    // elements; 0: no bound
  int gradient_slots;
  bool overlap_comm;
  Offload offload_optimizer, offload_param;
  int timeout_seconds;
  bool same_host_memory;
  bool operator==(const DistributedPlan&) const = default;
};

struct CheckpointPlan {
  std::int64_t save_interval;  // steps; 0: at the end only
  int keep;                    // newest N; 0: all
  Resume resume;
  bool operator==(const CheckpointPlan&) const = default;
};

struct MonitorPlan {
  std::int64_t log_interval;
  std::vector<Receiver> report_to;  // beside the console and metrics.jsonl
  bool wall_clock_breakdown;
  std::int64_t trace_step;    // 0: none
  int exposed_communication;  // pairs of steps; 0: not measured
  bool operator==(const MonitorPlan&) const = default;
};

// Where a value came from: "configs/run.yaml:14:5", "command line", "default".
struct Origin {
  std::string place;
  bool is_default = false;
  bool is_of_model = false;  // left open for, or set by, fill_from_model()
};

// A value that follows from the model's width.
using OfHiddenSize = std::int64_t (*)(std::int64_t hidden_size);

struct Plan {
  std::string name;
  std::filesystem::path output_dir;  // default runs/NAME
  ModelPlan model;
  DataPlan data;
  TrainingPlan training;
  PrecisionPlan precision;
  LawPlan law;
  DistributedPlan distributed;
  CheckpointPlan checkpoint;
  MonitorPlan monitor;
  std::map<std::string, Origin> origins;               // by full key, "training.learning_rate"
  std::map<std::string, OfHiddenSize> of_hidden_size;  // by full key: what waits for fill_from_model()
  std::vector<std::string> notices;                    // synonyms taken, keys without effect; printed once at start
};

// Files of other tools beside the configuration, as the command line names them; empty: none.
struct ToolFiles {
  std::filesystem::path deepspeed;   // DeepSpeed's JSON
  std::filesystem::path fsdp;        // transformers' or the guides' FSDP options, JSON
  std::filesystem::path accelerate;  // accelerate's YAML
};

// Reads the YAML file, then key=value overrides (dotted keys, values as YAML scalars or flow lists and blocks), against
// the schema table. Overrides win over the file; the same key twice in either is an error. Relative paths stay as they
// were written and mean the working directory, in the file as on the command line. Throws Error TR21xx (the codes are
// in docs/configuration.md): unknown key (nearest known one named), wrong type, out of range, duplicate, values that do
// not fit together, "not yet"; with file:line:column or "command line: key=value".
// Files of other tools, given here or named in the configuration, say what theirs say: a key that they and the
// configuration or the command line give different values is TR2111.
Plan load_plan(const std::filesystem::path& file, std::span<const std::string> overrides, const ToolFiles& files = {});

// The same from text; place names it in messages, and the last part of place without its extension is the default of
// `name`. Tests and checkpoints.
Plan parse_plan(const std::string& yaml, const std::string& place, std::span<const std::string> overrides,
                const ToolFiles& files = {});

// The text of a configuration file, bounded. Throws Error TR2100 where it cannot be read.
std::string read_configuration(const std::filesystem::path& file);

// What the folder of model.path says of the model block: sets what the configuration leaves open, with `place` as
// origin, and what waits for the width. A size that the configuration gives and the folder contradicts is Error TR2110,
// a sequence_length above the model's positions TR2104.
void fill_from_model(Plan& plan, const ModelPlan& model, const std::string& place);

// Where the key was given, and its name: "run.yaml:7:3: training.max_steps"; the name alone where no origin is known.
std::string place_of(const Plan& plan, const std::string& key);

// Every key with its value (not those that come from the folder of model.path), as YAML that load_plan() reads back to
// the same plan, numbers bit for bit (origins and notices are new then). Written as config.resolved.yaml.
std::string to_yaml(const Plan& plan);

// The same as a table with the origin of each value, for --dry-run.
std::string explain(const Plan& plan);

// Digest of all that decides the numbers of a run (not paths, intervals, log settings; not keys that another key makes
// idle, as num_epochs where max_steps is set). In the checkpoint manifest.
std::string numeric_digest(const Plan& plan);

// docs/configuration.md from the schema table.
std::string schema_as_markdown();

}  // namespace trireme::config
