// accelerate's YAML, by the keys of its release 1.15 (commands/config/config_args.py, commands/launch.py). The map
// fsdp_config is read by FSDP's table, deepspeed_config_file by DeepSpeed's.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "config/dialects.h"
#include "config/value.h"

namespace trireme::config {
namespace {

constexpr auto kSets = Fate::sets, kMapped = Fate::mapped, kNoEffect = Fate::no_effect, kRefused = Fate::refused;

ForeignKey refused(std::string_view name, std::string_view doc, std::vector<std::string_view> off = {}) {
  return {.name = name, .fate = kRefused, .off = std::move(off), .doc = doc};
}

ForeignKey idle(std::string_view name, std::string_view doc) {
  return {.name = name, .fate = kNoEffect, .doc = doc};
}

std::vector<ForeignKey> launch_keys() {
  constexpr std::string_view kTpu = "it is for TPUs", kNoGraph = "there is no graph to compile";
  return {
      refused("compute_environment", "jobs of a cloud service are started by its own tools", {"local_machine"}),
      {"distributed_type", kSets, "", Type::text},
      {"mixed_precision", kSets, "training.mixed_precision"},
      {.name = "fp16",
       .fate = kMapped,
       .type = Type::boolean,
       .doc = "is the old name of mixed_precision fp16, and counts where mixed_precision is not given"},
      {"num_processes", kSets, "", Type::integer},
      refused("num_machines", "several nodes come later (trireme launch --nnodes)", {"1"}),
      {.name = "machine_rank", .fate = kMapped, .type = Type::integer, .doc = "is `trireme launch --node-rank`"},
      {.name = "main_process_ip", .fate = kMapped, .type = Type::text, .doc = "is `trireme launch --master-addr`"},
      {.name = "main_process_port", .fate = kMapped, .type = Type::integer, .doc = "is `trireme launch --master-port`"},
      {.name = "rdzv_backend",
       .fate = kMapped,
       .type = Type::text,
       .doc = "is `trireme launch --rdzv-backend`, without effect on one node"},
      idle("same_network", "one node has one network"),
      idle("use_cpu", "training.device says where training runs"),
      idle("gpu_ids", "training.device says where training runs"),
      idle("debug", "every start proves that all ranks issue the same collectives"),
      idle("enable_cpu_affinity", "training.compute_threads says how many cores a rank uses"),
      idle("main_training_function", "the trainer is this program"),
      refused("command_file", "commands of a pod are for TPUs"),
      refused("commands", "commands of a pod are for TPUs"),
      refused("downcast_bf16", kTpu),
      refused("tpu_name", kTpu),
      refused("tpu_zone", kTpu),
      refused("tpu_use_cluster", kTpu),
      refused("tpu_use_sudo", kTpu),
      refused("tpu_env", kTpu),
      refused("tpu_vm", kTpu),
      {"fsdp_config", kSets},
      refused("fp8_config", "fp8 is later work"),
      refused("megatron_lm_config", "Megatron-LM's parallelism is later work"),
      refused("mpirun_config", "starting by mpirun is later work"),
      idle("dynamo_config", kNoGraph),
      idle("dynamo_backend", kNoGraph),
  };
}

std::vector<ForeignKey> deepspeed_map() {
  constexpr std::string_view kNodes = "several nodes come later", kDisk = "state on disk is later work";
  return {
      {"deepspeed_config.deepspeed_config_file", kSets, "", Type::text},
      {.name = "deepspeed_config.zero_stage",
       .key = "distributed.strategy",
       .values = {{"0", "ddp"}, {"1", "zero1"}, {"2", "zero2"}, {"3", "zero3"}}},
      {"deepspeed_config.gradient_accumulation_steps", kSets, "training.gradient_accumulation_steps"},
      {"deepspeed_config.gradient_clipping", kSets, "training.gradient_clipping"},
      {"deepspeed_config.offload_optimizer_device", kSets, "distributed.offload_optimizer"},
      {"deepspeed_config.offload_param_device", kSets, "distributed.offload_param"},
      {.name = "deepspeed_config.zero3_save_16bit_model",
       .fate = kMapped,
       .type = Type::boolean,
       .doc = "is read as true: checkpoints are saved whole until sharded checkpoints exist"},
      idle("deepspeed_config.zero3_init_flag", "no rank ever holds the whole model where parameters are slices"),
      refused("deepspeed_config.offload_optimizer_nvme_path", kDisk),
      refused("deepspeed_config.offload_param_nvme_path", kDisk),
      refused("deepspeed_config.deepspeed_hostfile", kNodes),
      refused("deepspeed_config.deepspeed_exclusion_filter", kNodes),
      refused("deepspeed_config.deepspeed_inclusion_filter", kNodes),
      idle("deepspeed_config.deepspeed_multinode_launcher", kNodes),
      refused("deepspeed_config.deepspeed_moe_layer_cls_names", "mixtures of experts are later work"),
  };
}

// In the map each name may begin with parallelism_config_ again.
ForeignKey axis(std::string_view name, std::string_view plain, std::string_view doc) {
  return {.name = name, .type = Type::integer, .names = {plain}, .doc = doc};
}

ForeignKey axis_of_later(std::string_view name, std::string_view plain, std::string_view doc) {
  return {.name = name, .fate = kRefused, .off = {"1"}, .names = {plain}, .doc = doc};
}

ForeignKey of_such_axis(std::string_view name, std::string_view plain) {
  return {.name = name, .fate = kNoEffect, .names = {plain}, .doc = "neither the context nor the sequence is divided"};
}

constexpr std::string_view kReplicas = "parallelism_config.parallelism_config_dp_replicate_size",
                           kShards = "parallelism_config.parallelism_config_dp_shard_size";

std::vector<ForeignKey> parallelism_map() {
  return {
      axis(kReplicas, "parallelism_config.dp_replicate_size", "distributed.dp_replicate"),
      axis(kShards, "parallelism_config.dp_shard_size", "distributed.dp_shard"),
      axis_of_later("parallelism_config.parallelism_config_tp_size", "parallelism_config.tp_size",
                    "tensor parallelism is later work"),
      axis_of_later("parallelism_config.parallelism_config_cp_size", "parallelism_config.cp_size",
                    "context parallelism is later work"),
      axis_of_later("parallelism_config.parallelism_config_sp_size", "parallelism_config.sp_size",
                    "sequence parallelism is later work"),
      of_such_axis("parallelism_config.parallelism_config_cp_backend", "parallelism_config.cp_backend"),
      of_such_axis("parallelism_config.parallelism_config_cp_comm_strategy", "parallelism_config.cp_comm_strategy"),
      of_such_axis("parallelism_config.parallelism_config_sp_backend", "parallelism_config.sp_backend"),
      of_such_axis("parallelism_config.parallelism_config_sp_seq_length", "parallelism_config.sp_seq_length"),
      of_such_axis("parallelism_config.parallelism_config_sp_seq_length_is_variable",
                   "parallelism_config.sp_seq_length_is_variable"),
      of_such_axis("parallelism_config.parallelism_config_sp_attn_implementation",
                   "parallelism_config.sp_attn_implementation"),
  };
}

// A map of a tool that distributed_type does not choose would be passed over by accelerate without a word.
void check_map(Translation& file, const ForeignValue& type, std::string_view map, std::string_view tool) {
  const std::vector<const ForeignValue*> given = file.in_block(map);
  const ForeignValue* whole = file.find(map);
  const bool is_given = !given.empty() || (whole != nullptr && !whole->node.entries.empty());
  if (!is_given || folded(type.node.text) == tool) return;
  throw Error(2104, type.place, "distributed_type is " + shown(type.node.text) + ", but there is " + std::string(map),
              "set distributed_type to the tool that is meant, or remove " + std::string(map));
}

void read_type(Translation& file) {
  const ForeignValue* type = file.find("distributed_type");
  if (type == nullptr) {
    throw Error(2106, file.place(), "accelerate's file has no distributed_type",
                "it takes NO, MULTI_CPU, MULTI_GPU, DEEPSPEED or FSDP");
  }
  const std::string word = folded(type->node.text);
  constexpr std::string_view kKnown[] = {"no", "multi_cpu", "multi_gpu", "deepspeed", "fsdp"};
  if (std::find(std::begin(kKnown), std::end(kKnown), word) == std::end(kKnown)) {
    file.refuse(*type, "this version has data parallelism, DeepSpeed's and FSDP's strategies",
                "use NO, MULTI_CPU, MULTI_GPU, DEEPSPEED or FSDP");
  }
  check_map(file, *type, "fsdp_config", "fsdp");
  check_map(file, *type, "deepspeed_config", "deepspeed");
  const bool has_file = file.find("deepspeed_config.deepspeed_config_file") != nullptr;
  const ForeignValue* replicas = file.find(kReplicas);
  const bool is_hybrid = replicas != nullptr && parse_integer(replicas->node.text).value_or(1) > 1;
  if (word == "fsdp") return file.set_softly("distributed.strategy", *type, is_hybrid ? "hybrid_shard" : "full_shard");
  if (word != "deepspeed" || has_file) return file.sets_nothing(*type);
  file.set_softly("distributed.strategy", *type, "zero2");
}

// A size that is left out is 1. Where all are 1, as in generated files, accelerate makes no mesh and distributed_type
// alone says how the ranks share the work.
void read_axes(Translation& file) {
  const ForeignValue *replicas = file.find(kReplicas), *shards = file.find(kShards);
  const auto is_one = [](const ForeignValue* size) { return size == nullptr || parse_integer(size->node.text) == 1; };
  const bool is_no_mesh = is_one(replicas) && is_one(shards);
  const auto set = [&](std::string_view key, const ForeignValue* size, const ForeignValue* other) {
    if (size != nullptr) return is_no_mesh ? file.sets_nothing(*size) : file.set(key, *size, size->node);
    if (!is_no_mesh) file.set_default(key, *other, "1");
  };
  set("distributed.dp_replicate", replicas, shards);
  set("distributed.dp_shard", shards, replicas);
}

// As accelerate refuses it: the file says these itself.
void check_alone(Translation& file) {
  const ForeignValue* named = file.find("deepspeed_config.deepspeed_config_file");
  if (named == nullptr) return;
  file.sets_nothing(*named);
  for (const char* leaf :
       {"zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device",
        "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model"}) {
    if (const ForeignValue* beside = file.find("deepspeed_config." + std::string(leaf))) {
      throw Error(2104, beside->key_place, beside->name + " stands beside deepspeed_config_file",
                  "say it in " + shown(named->node.text) + ", or leave that file out");
    }
  }
}

void accelerate_rules(Translation& file) {
  check_alone(file);
  read_type(file);
  read_axes(file);
  const ForeignValue* half = file.find("fp16");
  if (half != nullptr && parse_bool(half->node.text) == true && !file.gives("mixed_precision")) {
    file.set("training.mixed_precision", *half, "fp16");
  }
  if (const ForeignValue* ranks = file.find("num_processes")) {
    if (parse_integer(ranks->node.text).value_or(0) > 0)
      return file.set("distributed.num_processes", *ranks, ranks->node);
    file.sets_nothing(*ranks);
  }
}

std::vector<ForeignKey> accelerate_keys() {
  std::vector<ForeignKey> rows;
  for (const auto& part : {launch_keys(), deepspeed_map(), parallelism_map()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace

const Dialect& accelerate_dialect() {
  static const Dialect dialect{.tool = "accelerate", .keys = accelerate_keys(), .rules = accelerate_rules};
  return dialect;
}

}  // namespace trireme::config
