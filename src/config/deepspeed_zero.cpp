// zero_optimization: what each rank keeps as its slice (deepspeed/runtime/zero/config.py, offload_config.py).
#include "base/error.h"
#include "config/deepspeed_rows.h"
#include "config/value.h"

namespace trireme::config {
namespace {

constexpr auto kBoolean = Type::boolean, kInteger = Type::integer, kNumber = Type::number;

constexpr std::string_view kSlices = "gradients are reduced straight from where they are computed",
                           kNvme = "offloading is to host memory", kInternal = "it is an internal of DeepSpeed's hooks",
                           kQuantized =
                               "weights and gradients travel in their own types; quantizing them is later work";

ForeignKey by_width(ForeignKey row) {
  row.auto_is_ruled = true;
  return row;
}

std::vector<ForeignKey> bucket_keys() {
  return {
      sets("zero_optimization.overlap_comm", "distributed.overlap_comm"),
      sets("zero_optimization.reduce_bucket_size", "distributed.bucket_size"),
      sets("zero_optimization.allgather_bucket_size", "distributed.allgather_bucket_size"),
      {.name = "allgather_size",
       .fate = Fate::mapped,
       .key = "distributed.allgather_bucket_size",
       .doc = "the name that it has beside zero_optimization as true or false"},
      idle("zero_optimization.contiguous_gradients", kBoolean, "gradients of a group are always contiguous"),
      idle("zero_optimization.reduce_scatter", kBoolean, "the strategy decides which collective reduces gradients"),
      idle("zero_optimization.use_multi_rank_bucket_allreduce", kBoolean, kSlices),
      idle("zero_optimization.allgather_partitions", kBoolean, "slices are gathered by one collective, always"),
      idle("zero_optimization.round_robin_gradients", kBoolean, kSlices),
      idle("zero_optimization.ignore_unused_parameters", kBoolean, "the schedule knows which unit uses what"),
      idle("zero_optimization.load_from_fp32_weights", kBoolean, "checkpoints have the fp32 weights, and give them"),
      idle("zero_optimization.elastic_checkpoint", kBoolean, "a checkpoint fits any number of ranks"),
      idle("zero_optimization.sub_group_size", kInteger, "a storage group is updated as one"),
      idle("zero_optimization.grad_hooks", kBoolean, "there are no hooks, and DeepSpeed's own code does not know it"),
  };
}

std::vector<ForeignKey> stage_3_keys() {
  return {
      by_width(
          ruled("zero_optimization.stage3_prefetch_bucket_size", kInteger, {"zero_optimization.prefetch_bucket_size"})),
      by_width(sets("zero_optimization.stage3_param_persistence_threshold", "distributed.persistence_threshold",
                    {"zero_optimization.param_persistence_threshold"})),
      {.name = "zero_optimization.stage3_model_persistence_threshold",
       .fate = Fate::refused,
       .names = {"zero_optimization.model_persistence_threshold"},
       .doc = "stage3_param_persistence_threshold alone says which parameters stay whole"},
      sets("zero_optimization.stage3_max_live_parameters", "distributed.max_live_parameters",
           {"zero_optimization.max_live_parameters"}),
      sets("zero_optimization.stage3_max_reuse_distance", "distributed.reuse_distance",
           {"zero_optimization.max_reuse_distance"}),
      {.name = "zero_optimization.stage3_gather_16bit_weights_on_model_save",
       .fate = Fate::mapped,
       .type = kBoolean,
       .names = {"zero_optimization.gather_16bit_weights_on_model_save",
                 "zero_optimization.stage3_gather_fp16_weights_on_model_save",
                 "zero_optimization.gather_fp16_weights_on_model_save"},
       .doc = "is read as true: checkpoints are saved whole until sharded checkpoints exist"},
      {.name = "zero_optimization.stage3_module_granularity_threshold",
       .fate = Fate::refused,
       .names = {"zero_optimization.module_granularity_threshold"},
       .doc = "units are not joined by their size; distributed.auto_wrap joins storage"},
      {.name = "zero_optimization.stage3_use_all_reduce_for_fetch_params",
       .fate = Fate::refused,
       .names = {"zero_optimization.use_all_reduce_for_fetch_params"},
       .doc = "parameters are gathered by all-gather"},
      idle("zero_optimization.stage3_allgather_sequential", kBoolean, "groups are gathered one after another",
           {"zero_optimization.allgather_sequential"}),
      idle("zero_optimization.memory_efficient_linear", kBoolean, "no layer keeps a copy of its weights"),
      idle("zero_optimization.leaf_module.classes", Type::texts, "a block is always fetched as a whole"),
      idle("zero_optimization.leaf_module.names", Type::texts, "a block is always fetched as a whole"),
      idle("zero_optimization.leaf_module.name_suffixes", Type::texts, "a block is always fetched as a whole"),
      ruled("zero_optimization.zero_hpz_partition_size", kInteger),
      ruled("zero_optimization.mics_shard_size", kInteger),
      refused("zero_optimization.mics_hierarchical_params_gather", "slices are gathered in one step"),
      refused("zero_optimization.zero_quantized_weights", kQuantized),
      refused("zero_optimization.zero_quantized_nontrainable_weights", kQuantized),
      refused("zero_optimization.zero_quantized_gradients", kQuantized),
      refused("zero_optimization.zeropp_loco_param", kQuantized),
      refused("zero_optimization.zenflow", "updating part of the parameters late is not done here"),
      refused("zero_optimization.legacy_stage1", "DeepSpeed removed it", {}),
      idle("zero_optimization.pipeline_loading_checkpoint", kBoolean, kInternal),
      idle("zero_optimization.override_module_apply", kBoolean, kInternal),
      idle("zero_optimization.log_trace_cache_warnings", kBoolean, kInternal),
      idle("zero_optimization.enable_sanity_checks", kBoolean, "the schedule is always verified"),
      idle("zero_optimization.save_muon_momentum_buffer_in_memory", kBoolean, "there is no Muon"),
  };
}

std::vector<ForeignKey> offload_keys_of_zero() {
  const auto device = [](std::string_view name) {
    return ForeignKey{.name = name, .values = {{"none", "none"}, {"cpu", "cpu"}, {"nvme", "nvme"}}};
  };
  const auto old = [](std::string_view name, std::string_view reason) {
    return ForeignKey{.name = name, .fate = Fate::mapped, .type = kBoolean, .doc = reason};
  };
  constexpr std::string_view kPinned = "there is no device whose copies need pinned memory";
  return {
      device("zero_optimization.offload_param.device"),
      refused("zero_optimization.offload_param.nvme_path", kNvme),
      idle("zero_optimization.offload_param.buffer_count", kInteger, kNvme),
      idle("zero_optimization.offload_param.buffer_size", kInteger, kNvme),
      idle("zero_optimization.offload_param.max_in_cpu", kInteger, kNvme),
      idle("zero_optimization.offload_param.pin_memory", kBoolean, kPinned),
      device("zero_optimization.offload_optimizer.device"),
      refused("zero_optimization.offload_optimizer.nvme_path", kNvme),
      idle("zero_optimization.offload_optimizer.buffer_count", kInteger, kNvme),
      idle("zero_optimization.offload_optimizer.pin_memory", kBoolean, kPinned),
      idle("zero_optimization.offload_optimizer.pipeline_read", kBoolean, kNvme),
      idle("zero_optimization.offload_optimizer.pipeline_write", kBoolean, kNvme),
      idle("zero_optimization.offload_optimizer.fast_init", kBoolean, kNvme),
      ruled("zero_optimization.offload_optimizer.ratio", kNumber),
      refused("zero_optimization.offload_optimizer.super_offload", "it is for other processors"),
      idle("zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber, "it belongs to super_offload"),
      old("zero_optimization.cpu_offload", "is the old name of offload_optimizer.device"),
      old("zero_optimization.cpu_offload_param", "is the old name of offload_param.device"),
      old("zero_optimization.cpu_offload_use_pin_memory", "is the old name of pin_memory, which has no effect here"),
  };
}

std::string word_of(const ForeignValue& value) {
  return folded(value.node.text);
}

std::string stage_of(const Translation& file) {
  const ForeignValue* stage = file.find("zero_optimization.stage");
  return stage == nullptr ? "" : stage->node.text;
}

// MiCS and hpZ keep all slices within so many ranks.
void read_stage(Translation& file) {
  const ForeignValue* stage = file.find("zero_optimization.stage");
  const ForeignValue* sharing = nullptr;
  for (const char* name : {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"}) {
    const ForeignValue* size = file.find(name);
    if (size == nullptr) continue;
    const std::int64_t ranks = parse_integer(size->node.text).value_or(0);
    if (ranks <= (size->name.ends_with("mics_shard_size") ? 0 : 1)) {
      file.sets_nothing(*size);
    } else if (stage_of(file) != "3") {
      file.has_no_effect(*size, "it is for stage 3");
    } else {
      if (sharing != nullptr) file.refuse(*size, sharing->name + " says another size of a shard", "keep one of them");
      sharing = size;
    }
  }
  if (sharing != nullptr) {
    file.set("distributed.strategy", *sharing, "hybrid_shard");
    file.set("distributed.dp_shard", *sharing, sharing->node);
    file.notice(*sharing,
                "is read as hybrid_shard: weights, gradients and optimizer state are sharded among that "
                "many ranks, and copied over the others");
    return file.sets_nothing(*stage);
  }
  if (stage == nullptr) return;
  const std::string names[] = {"ddp", "zero1", "zero2", "zero3"};
  file.set("distributed.strategy", *stage, names[static_cast<std::size_t>(stage->node.text.front() - '0')]);
}

void read_offload(Translation& file, std::string_view name, std::string_view key, bool is_of_stage_3) {
  const ForeignValue* value = file.find(name);
  if (value == nullptr) return;
  const std::string word = word_of(*value), stage = stage_of(file);
  if (word == "none" || word == "false") return file.set(key, *value, "none");
  if (word == "nvme") file.refuse(*value, "offloading is to host memory, not to NVMe", "use \"cpu\"");
  if (stage == "0") {
    file.refuse(*value, "stage 0 shards nothing that could be offloaded", "use stage 1, 2 or 3, or \"none\"");
  }
  if (is_of_stage_3 && (stage == "1" || stage == "2")) {
    return file.has_no_effect(*value, "stage " + stage + " keeps whole parameters; they are offloaded in stage 3");
  }
  file.set(key, *value, "cpu");
}

void read_prefetch(Translation& file) {
  const ForeignValue* size = file.find("zero_optimization.stage3_prefetch_bucket_size");
  if (size == nullptr) return;
  const std::int64_t elements = parse_integer(size->node.text).value_or(0);
  if (elements < 0) throw Error(2105, size->place, size->name + " is " + size->node.text, "it takes an integer from 0");
  if (elements == 0) return file.set("distributed.gather_ahead", *size, "0");
  file.set_softly("distributed.gather_ahead", *size, "1");
}

// What transformers' Trainer makes of "auto" in stage 3. Not of reduce_bucket_size, hidden_size^2: there it joins
// messages, here it would cut a block into many.
void read_auto(Translation& file) {
  struct Row {
    std::string_view name, key;
    OfHiddenSize value;
    std::string formula;
  };
  const Row rows[] = {{"zero_optimization.stage3_prefetch_bucket_size", "distributed.gather_ahead",
                       [](std::int64_t h) -> std::int64_t { return 9 * h * h / 10 > 0 ? 1 : 0; },
                       "1 for 0.9 hidden_size^2 elements, rounded down"},
                      {"zero_optimization.stage3_param_persistence_threshold", "distributed.persistence_threshold",
                       [](std::int64_t h) { return 10 * h; }, "10 hidden_size"}};
  for (const Row& row : rows) {
    const ForeignValue* value = file.find_auto(row.name);
    if (value == nullptr) continue;
    if (stage_of(file) != "3") {
      file.leave_open(*value);
    } else {
      file.set_softly(row.key, *value, row.value, row.formula);
    }
  }
}

void check_ratio(Translation& file) {
  const ForeignValue* ratio = file.find("zero_optimization.offload_optimizer.ratio");
  if (ratio == nullptr) return;
  if (parse_number(ratio->node.text) != 1.0) {
    file.refuse(*ratio, "the optimizer's state is offloaded as a whole", "use 1.0, or leave it out");
  }
  file.sets_nothing(*ratio);
}

}  // namespace

std::vector<ForeignKey> deepspeed_zero_keys() {
  std::vector<ForeignKey> rows = {
      {.name = "zero_optimization.stage", .values = {{"0", ""}, {"1", ""}, {"2", ""}, {"3", ""}}},
      {.name = "zero_optimization",
       .fate = Fate::mapped,
       .key = "distributed.strategy",
       .values = {{"true", "zero1"}, {"false", "ddp"}},
       .doc = "an old form, of stages 1 and 0"}};
  for (const auto& part : {bucket_keys(), stage_3_keys(), offload_keys_of_zero()}) add(rows, part);
  return rows;
}

void read_deepspeed_zero(Translation& file) {
  read_stage(file);
  read_prefetch(file);
  read_auto(file);
  check_ratio(file);
  read_offload(file, "zero_optimization.offload_optimizer.device", "distributed.offload_optimizer", false);
  read_offload(file, "zero_optimization.cpu_offload", "distributed.offload_optimizer", false);
  read_offload(file, "zero_optimization.offload_param.device", "distributed.offload_param", true);
  read_offload(file, "zero_optimization.cpu_offload_param", "distributed.offload_param", true);
}

}  // namespace trireme::config
