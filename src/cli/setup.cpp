// `trireme setup`: writes the files of other tools that their users keep beside a configuration.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "config/document.h"
#include "config/value.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr const char* kSetupUsage =
    "usage: trireme setup KIND [arguments]; `trireme setup KIND --help` tells more\n"
    "  deepspeed   DeepSpeed's JSON, by default config/ds_config.json\n"
    "  fsdp        FSDP's options as JSON, by default config/fsdp_config.json\n";

// CLI11's list of one option's names: as written and with hyphens.
std::string names(const std::string& name) {
  std::string hyphenated = name;
  std::replace(hyphenated.begin(), hyphenated.end(), '_', '-');
  return "--" + name + (hyphenated == name ? "" : ",--" + hyphenated);
}

struct Output {
  std::string file;
  bool force = false;

  void add_to(CLI::App& app) {
    app.add_option("--output,-o", file, "file to write; its folders are made")->capture_default_str();
    app.add_flag("--force", force, "write over another file of this name");
  }

  // What is there stays, unless it is the same or --force says otherwise.
  void write(const Json& content) const {
    const std::string text = content.dump(2) + "\n";
    const fs::path path = file;
    if (path.empty()) throw Error(2017, "command line: --output", "is empty", "name the file to write");
    std::error_code ignored;
    if (!force && fs::exists(fs::symlink_status(path, ignored))) {
      if (fs::is_regular_file(path, ignored) && read_file(path) == text) {
        print(file + " says so already\n");
        return flush_output();
      }
      throw Error(2016, file, "exists and says something else: it was kept", "--force writes over it");
    }
    if (path.has_parent_path()) {
      std::error_code failed;
      fs::create_directories(path.parent_path(), failed);
      if (failed) throw Error(kWriteFailed, path.parent_path(), "cannot be made: " + failed.message());
    }
    write_file_atomic(path, text);
    print("wrote " + file + "\n");
    flush_output();
  }
};

[[noreturn]] void refuse(const std::string& option, const std::string& why, const std::string& remedy) {
  throw Error(2018, "command line: " + option, why, remedy);
}

Json number_or_auto(const std::optional<double>& value) {
  if (!value) return "auto";
  return *value == static_cast<double>(static_cast<std::int64_t>(*value)) ? Json(static_cast<std::int64_t>(*value))
                                                                          : Json(*value);
}

// Whole numbers as a configuration has them, also 5e8.
CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto check = [low, high](std::string& text) -> std::string {
    const std::string wanted = " is no whole number from " + std::to_string(low) + " to " + std::to_string(high);
    try {
      const auto value = config::parse_integer(text);
      if (!value || *value < low || *value > high) return config::shown(text) + wanted;
      text = std::to_string(*value);
      return {};
    } catch (const std::out_of_range&) {
      return config::shown(text) + wanted;
    }
  };
  return {check, "INT"};
}

struct DeepSpeedChoices {
  int stage = 2;
  bool offload_optimizer = false, offload_param = false, bf16 = false, fp16 = false, wall_clock_breakdown = false;
  std::optional<double> batch, micro_batch, accumulation, clipping, steps_per_print;
  double bucket = 5e8;
};

void check(const DeepSpeedChoices& choices) {
  if (choices.bf16 && choices.fp16) refuse("--bf16", "is given with --fp16", "a run has one of them");
  if (choices.offload_param && choices.stage < 3) {
    refuse("--offload_param", "ZeRO stage " + std::to_string(choices.stage) + " has whole parameters on every rank",
           "--zero_stage 3 shards them");
  }
  if (choices.offload_optimizer && choices.stage == 0) {
    refuse("--offload_optimizer", "ZeRO stage 0 does not shard the optimizer's state", "--zero_stage 1, 2 or 3");
  }
}

// Keys and defaults as https://www.deepspeed.ai/docs/config-json/ has them; "auto" leaves a value to the configuration
// that names the file.
Json deepspeed_json(const DeepSpeedChoices& choices) {
  Json json;
  if (choices.batch) json["train_batch_size"] = number_or_auto(choices.batch);
  json["train_micro_batch_size_per_gpu"] = number_or_auto(choices.micro_batch);
  json["gradient_accumulation_steps"] = number_or_auto(choices.accumulation);
  json["gradient_clipping"] = number_or_auto(choices.clipping);
  json["zero_allow_untested_optimizer"] = true;
  json["zero_force_ds_cpu_optimizer"] = false;
  if (choices.bf16) json["bf16"] = {{"enabled", true}};
  if (choices.fp16) {
    json["fp16"] = {
        {"enabled", true}, {"loss_scale", 0}, {"loss_scale_window", 1000}, {"hysteresis", 2}, {"min_loss_scale", 1}};
  }
  Json zero = {{"stage", choices.stage},
               {"contiguous_gradients", true},
               {"overlap_comm", true},
               {"reduce_scatter", true},
               {"reduce_bucket_size", number_or_auto(choices.bucket)},
               {"allgather_bucket_size", number_or_auto(choices.bucket)}};
  const Json on_the_host = {{"device", "cpu"}, {"pin_memory", true}};
  if (choices.offload_optimizer) zero["offload_optimizer"] = on_the_host;
  if (choices.offload_param) zero["offload_param"] = on_the_host;
  if (choices.stage == 3) zero["stage3_gather_16bit_weights_on_model_save"] = true;
  json["zero_optimization"] = zero;
  if (choices.steps_per_print) json["steps_per_print"] = number_or_auto(choices.steps_per_print);
  if (choices.wall_clock_breakdown) json["wall_clock_breakdown"] = true;
  return json;
}

int write_deepspeed(Arguments arguments) {
  CLI::App app("Write a DeepSpeed configuration, which `train`, `plan` and `launch` read.", "trireme setup deepspeed");
  DeepSpeedChoices choices;
  Output output{"config/ds_config.json"};
  const auto count = [&](const std::string& name, std::optional<double>& value, const char* help) {
    app.add_option(names(name), value, help)->transform(whole_number(1, 1'000'000'000));
  };
  app.add_option("--zero_stage,--zero-stage,--stage", choices.stage, "0 to 3")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_flag(names("offload_optimizer"), choices.offload_optimizer, "optimizer's state in host memory");
  app.add_flag(names("offload_param"), choices.offload_param, "stage 3: parameters in host memory too");
  app.add_flag("--bf16", choices.bf16, "compute in bf16");
  app.add_flag("--fp16", choices.fp16, "compute in fp16, with a dynamic loss scale");
  count("train_batch_size", choices.batch, "samples of a step over all ranks");
  app.add_option(
         "--micro_batch_size,--micro-batch-size,--train_micro_batch_size_per_gpu,"
         "--train-micro-batch-size-per-gpu",
         choices.micro_batch, "samples that a rank computes at once")
      ->transform(whole_number(1, 1 << 20));
  count("gradient_accumulation_steps", choices.accumulation, "micro-batches of a rank in a step");
  app.add_option(names("gradient_clipping"), choices.clipping, "largest norm of the gradient; 0: no clipping")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--bucket_size,--bucket-size,--reduce_bucket_size,--reduce-bucket-size", choices.bucket,
                 "most elements of a collective")
      ->transform(whole_number(1, 1'000'000'000'000))
      ->capture_default_str();
  count("steps_per_print", choices.steps_per_print, "steps between lines on the console");
  app.add_flag(names("wall_clock_breakdown"), choices.wall_clock_breakdown, "print where a step's time went");
  output.add_to(app);
  parse(app, arguments);
  check(choices);
  output.write(deepspeed_json(choices));
  return 0;
}

// An option that takes one of a few words, in any case, and is written into the file in capitals.
CLI::Validator one_of(const Words& words) {
  const auto check = [words](std::string& text) -> std::string {
    std::string allowed;
    for (const std::string& word : words) {
      if (config::folded(text) == config::folded(word)) {
        text = word;
        return {};
      }
      allowed += (allowed.empty() ? "" : ", ") + word;
    }
    return config::shown(text) + " is not one of " + allowed;
  };
  return {check, "WORD"};
}

struct FsdpChoices {
  std::string sharding = "FULL_SHARD", mixed_precision, wrap = "TRANSFORMER_BASED_WRAP", prefetch = "BACKWARD_PRE",
              state_dict = "SHARDED_STATE_DICT";
  // Blocks of the families that have one; a model has one of them.
  Words layer_classes = {"LlamaDecoderLayer", "MistralDecoderLayer", "GemmaDecoderLayer",
                         "Qwen2DecoderLayer", "Qwen3DecoderLayer",   "GPT2Block"};
  std::optional<std::int64_t> min_num_params;
  bool forward_prefetch = false, offload_params = false, activation_checkpointing = false, use_orig_params = false;
};

Json fsdp_json(const FsdpChoices& choices) {
  Json json;
  if (choices.wrap == "TRANSFORMER_BASED_WRAP") json["fsdp_transformer_layer_cls_to_wrap"] = choices.layer_classes;
  json["fsdp_sharding_strategy"] = choices.sharding;
  json["fsdp_state_dict_type"] = choices.state_dict;
  json["fsdp_cuda_graphs"] = false;
  json["fsdp_auto_wrap_policy"] = choices.wrap;
  if (choices.min_num_params) json["fsdp_min_num_params"] = *choices.min_num_params;
  json["fsdp_sync_module_states"] = true;
  json["fsdp_use_orig_params"] = choices.use_orig_params;
  json["fsdp_backward_prefetch_policy"] = choices.prefetch;
  json["fsdp_forward_prefetch"] = choices.forward_prefetch;
  json["fsdp_cpu_ram_efficient_loading"] = true;
  if (choices.offload_params) json["fsdp_offload_params"] = true;
  if (choices.activation_checkpointing) json["fsdp_activation_checkpointing"] = true;
  if (!choices.mixed_precision.empty()) json["fsdp_mixed_precision"] = choices.mixed_precision;
  return json;
}

int write_fsdp(Arguments arguments) {
  CLI::App app("Write FSDP's options as a JSON file, which `train`, `plan` and `launch` read.", "trireme setup fsdp");
  FsdpChoices choices;
  Output output{"config/fsdp_config.json"};
  const auto word = [&](const std::string& option, std::string& value, const Words& words, const char* help) {
    app.add_option(option, value, help)->transform(one_of(words))->capture_default_str();
  };
  word(names("sharding_strategy"), choices.sharding, {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"},
       "what is sharded");
  word(names("mixed_precision"), choices.mixed_precision, {"BFLOAT16", "FP16", "FULL"}, "unset: the configuration's");
  word("--auto_wrap_policy,--auto-wrap-policy,--wrap_policy", choices.wrap,
       {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"}, "what is stored and gathered together");
  app.add_option("--transformer_layer_cls_to_wrap,--transformer-layer-cls-to-wrap", choices.layer_classes,
                 "classes of blocks, with commas between")
      ->delimiter(',');
  app.add_option(names("min_num_params"), choices.min_num_params, "fewest elements that are stored together")
      ->transform(whole_number(0, 1'000'000'000'000));
  word("--backward_prefetch,--backward-prefetch,--backward_prefetch_policy", choices.prefetch,
       {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"}, "when the next parameters are gathered");
  word(names("state_dict_type"), choices.state_dict, {"SHARDED_STATE_DICT", "FULL_STATE_DICT", "LOCAL_STATE_DICT"},
       "form of checkpoints");
  app.add_flag("--forward_prefetch,--forward-prefetch", choices.forward_prefetch, "gather ahead in the forward too");
  app.add_flag("--offload_params,--offload-params,--cpu_offload,--cpu-offload", choices.offload_params,
               "parameters and optimizer's state in host memory");
  app.add_flag("--activation_checkpointing,--activation-checkpointing", choices.activation_checkpointing,
               "compute blocks again instead of keeping what they need for their backward");
  app.add_flag("--use_orig_params,--use-orig-params,!--no-use-orig-params", choices.use_orig_params,
               "has no effect here");
  output.add_to(app);
  parse(app, arguments);
  output.write(fsdp_json(choices));
  return 0;
}

struct SetupKind {
  const char* name;
  const char* what;
  int (*write)(Arguments);  // nullptr: not yet
};

constexpr SetupKind kSetupKinds[] = {
    {"deepspeed", "", write_deepspeed},
    {"fsdp", "", write_fsdp},
    {"launcher", "a script that starts the ranks of a node: `trireme launch --nproc-per-node N train CONFIG` does it",
     nullptr},
    {"slurm", "a batch script for SLURM", nullptr},
    {"azureml", "a job of Azure ML", nullptr},
    {"kubernetes", "a job of Kubernetes", nullptr},
};

}  // namespace

int run_setup(Arguments arguments) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  if (name == "--help" || name == "-h") {
    print(kSetupUsage);
    flush_output();
    return 0;
  }
  for (const SetupKind& kind : kSetupKinds) {
    if (name != kind.name) continue;
    if (kind.write != nullptr) return kind.write(arguments.subspan(1));
    throw Error(2001, "trireme setup " + name, std::string("not yet: ") + kind.what,
                "setup writes deepspeed and fsdp files; scripts and jobs come with later work");
  }
  throw Error(
      2015, "command line",
      name.empty() ? "trireme setup needs to know what to write" : "trireme setup does not know " + config::shown(name),
      "write: trireme setup deepspeed, or trireme setup fsdp");
}

}  // namespace trireme::cli
