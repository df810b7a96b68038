// optimizer and scheduler: one of DeepSpeed's names, and its parameters (deepspeed/runtime/engine.py, lr_schedules.py,
// and the constructors in deepspeed/ops and torch.optim for what is left out).
#include <algorithm>

#include "base/error.h"
#include "config/deepspeed_rows.h"
#include "config/suggest.h"
#include "config/value.h"

namespace trireme::config {
namespace {

// A parameter by its last name; key: ours, none where a rule reads it; fallback: DeepSpeed's default, none: ours.
struct Parameter {
  std::string_view name, key, fallback = {};
};

// One name of a type, in lower case. unsupported: why it is refused.
struct Choice {
  std::string_view name, ours;
  std::vector<Parameter> parameters = {};
  std::string_view unsupported = {};
};

constexpr std::string_view kLearningRate = "training.learning_rate";

const std::vector<Choice>& optimizers() {
  constexpr std::string_view kMessages = "it compresses messages, which is later work",
                             kMup = "its rates follow the width of each layer; one rate is for all here",
                             kMatrices = "it works on whole matrices; optimizer state is flat slices here",
                             kNorms = "it needs the norm of each parameter; optimizer state is flat slices here";
  const std::vector<Parameter> adam = {{"lr", kLearningRate, "1e-3"},
                                       {"betas", "", "0.999"},
                                       {"eps", "training.adam_eps", "1e-8"},
                                       {"weight_decay", "training.weight_decay", "0"},
                                       {"adam_w_mode", ""},
                                       {"torch_adam", ""},
                                       {"fp32_optimizer_states", ""},
                                       {"bias_correction", ""},
                                       {"amsgrad", ""},
                                       {"foreach", ""},
                                       {"fused", ""}};
  static const std::vector<Choice> choices = {
      {"adamw", "adamw", adam},
      {"adam", "adamw", adam},
      {"sgd",
       "sgd",
       {{"lr", kLearningRate, "1e-3"},
        {"momentum", "training.momentum", "0"},
        {"weight_decay", "training.weight_decay", "0"},
        {"nesterov", "training.nesterov", "false"},
        {"dampening", ""},
        {"foreach", ""},
        {"fused", ""}}},
      {"adagrad",
       "adagrad",
       {{"lr", kLearningRate, "1e-2"},
        {"eps", "training.adam_eps", "1e-10"},
        {"weight_decay", "training.weight_decay", "0"},
        {"initial_accumulator_value", "training.initial_accumulator_value", "0"},
        {"lr_decay", ""},
        {"amsgrad", ""},
        {"foreach", ""}}},
      {"lion",
       "lion",
       {{"lr", kLearningRate, "1e-3"}, {"betas", "", "0.99"}, {"weight_decay", "training.weight_decay", "0"}}},
      {"lamb", "", {}, kNorms},
      {"onebitadam", "", {}, kMessages},
      {"zerooneadam", "", {}, kMessages},
      {"onebitlamb", "", {}, kMessages},
      {"muadam", "", {}, kMup},
      {"muadamw", "", {}, kMup},
      {"musgd", "", {}, kMup},
      {"muon", "", {}, kMatrices}};
  return choices;
}

const std::vector<Choice>& schedulers() {
  const Parameter steps{"warmup_num_steps", "training.warmup_steps"}, rise{"warmup_type", "training.warmup_type"},
      low{"warmup_min_lr", "training.warmup_min_learning_rate"}, total{"total_num_steps", "training.lr_total_steps"},
      last{"last_batch_iteration", ""};
  static const std::vector<Choice> choices = {
      {"warmuplr", "warmup", {low, {"warmup_max_lr", ""}, steps, rise, last}},
      {"warmupdecaylr", "warmup_decay", {low, {"warmup_max_lr", ""}, steps, rise, total, last}},
      {"warmupcosinelr",
       "warmup_cosine",
       {total,
        steps,
        rise,
        {"warmup_min_ratio", "training.warmup_min_ratio"},
        {"cos_min_ratio", "training.cos_min_ratio"},
        last}},
      {"onecycle",
       "one_cycle",
       {{"cycle_min_lr", "training.cycle_min_learning_rate"},
        {"cycle_max_lr", ""},
        {"cycle_first_step_size", "training.cycle_first_step_size"},
        {"cycle_second_step_size", "training.cycle_second_step_size"},
        {"decay_step_size", "training.decay_step_size"},
        {"decay_lr_rate", "training.decay_lr_rate"},
        {"cycle_first_stair_count", ""},
        {"cycle_second_stair_count", ""},
        {"cycle_momentum", ""},
        {"cycle_min_mom", ""},
        {"cycle_max_mom", ""},
        {"decay_mom_rate", ""},
        last}},
      {"lrrangetest",
       "lr_range_test",
       {{"lr_range_test_min_lr", "training.range_test_min_learning_rate"},
        {"lr_range_test_step_size", "training.range_test_step_size"},
        {"lr_range_test_step_rate", "training.range_test_step_rate"},
        {"lr_range_test_staircase", "training.range_test_staircase"},
        last}}};
  return choices;
}

// Those that a rule or a parameter of a choice reads are all `ruled`; the rest mean something to one value only.
std::vector<ForeignKey> optimizer_rows() {
  constexpr auto kNumber = Type::number, kBoolean = Type::boolean;
  constexpr std::string_view kSameNumbers = "it is another implementation of the same numbers";
  std::vector<ForeignKey> rows = {
      ruled("optimizer.type", Type::text),
      idle("optimizer.legacy_fusion", kBoolean, kSameNumbers),
      ruled("optimizer.params.lr", kNumber),
      ruled("optimizer.params.betas", Type::any),
      ruled("optimizer.params.eps", kNumber),
      ruled("optimizer.params.weight_decay", kNumber),
      ruled("optimizer.params.momentum", kNumber),
      ruled("optimizer.params.nesterov", kBoolean),
      ruled("optimizer.params.initial_accumulator_value", kNumber),
      ruled("optimizer.params.adam_w_mode", kBoolean),
      refused("optimizer.params.dampening", "what momentum adds is not dampened"),
      refused("optimizer.params.lr_decay", "the rate follows one law: a scheduler"),
      refused("optimizer.params.amsgrad", "the largest second moment is not kept"),
      refused("optimizer.params.max_grad_norm", "it is no parameter of an optimizer: gradient_clipping is the key"),
      only("optimizer.params.bias_correction", "true", "the moments are always corrected"),
      only("optimizer.params.fp32_optimizer_states", "true", "optimizer state is fp32"),
      idle("optimizer.params.torch_adam", kBoolean, kSameNumbers),
      idle("optimizer.params.foreach", kBoolean, kSameNumbers),
      idle("optimizer.params.fused", kBoolean, kSameNumbers),
  };
  // Of optimizers that are refused by their names.
  for (const std::string_view name :
       {"optimizer.params.freeze_step", "optimizer.params.cuda_aware", "optimizer.params.comm_backend_name",
        "optimizer.params.var_freeze_step", "optimizer.params.var_update_scaler", "optimizer.params.local_step_scaler",
        "optimizer.params.local_step_clipper", "optimizer.params.max_coeff", "optimizer.params.min_coeff",
        "optimizer.params.coeff_beta", "optimizer.params.factor_max", "optimizer.params.factor_min",
        "optimizer.params.factor_threshold", "optimizer.params.muon_lr", "optimizer.params.adam_lr",
        "optimizer.params.ns_method"}) {
    rows.push_back({.name = name, .fate = Fate::no_effect});
  }
  return rows;
}

std::vector<ForeignKey> scheduler_rows() {
  constexpr auto kNumber = Type::number, kInteger = Type::integer, kBoolean = Type::boolean;
  constexpr std::string_view kStairs = "the rate changes with each step",
                             kMomentum = "it is for a momentum that cycles, which stays as it is here";
  return {
      ruled("scheduler.type", Type::text),
      ruled("scheduler.params.warmup_min_lr", kNumber),
      ruled("scheduler.params.warmup_max_lr", kNumber),
      ruled("scheduler.params.warmup_num_steps", kInteger),
      ruled("scheduler.params.warmup_type", Type::text),
      ruled("scheduler.params.total_num_steps", kInteger),
      ruled("scheduler.params.warmup_min_ratio", kNumber),
      ruled("scheduler.params.cos_min_ratio", kNumber),
      ruled("scheduler.params.cycle_min_lr", kNumber),
      ruled("scheduler.params.cycle_max_lr", kNumber),
      ruled("scheduler.params.cycle_first_step_size", kInteger),
      ruled("scheduler.params.cycle_second_step_size", kInteger),
      ruled("scheduler.params.decay_step_size", kInteger),
      ruled("scheduler.params.decay_lr_rate", kNumber),
      ruled("scheduler.params.lr_range_test_min_lr", kNumber),
      ruled("scheduler.params.lr_range_test_step_size", kInteger),
      ruled("scheduler.params.lr_range_test_step_rate", kNumber),
      ruled("scheduler.params.lr_range_test_staircase", kBoolean),
      refused("scheduler.params.cycle_first_stair_count", kStairs),
      refused("scheduler.params.cycle_second_stair_count", kStairs),
      refused("scheduler.params.cycle_momentum", "the momentum stays as it is; the learning rate alone cycles"),
      idle("scheduler.params.cycle_min_mom", kNumber, kMomentum),
      idle("scheduler.params.cycle_max_mom", kNumber, kMomentum),
      idle("scheduler.params.decay_mom_rate", kNumber, kMomentum),
      only("scheduler.params.last_batch_iteration", "-1", "a run begins with its first step, or where it stopped"),
  };
}

// The row of a type, or an error that names the nearest, or why it is refused.
const Choice& choice_of(const Translation& file, const ForeignValue& type, const std::vector<Choice>& choices) {
  std::string word = type.node.text, known;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string> names;
  for (const Choice& choice : choices) {
    if (choice.name == word && choice.unsupported.empty()) return choice;
    if (choice.name == word)
      file.refuse(type, std::string(choice.unsupported), "use Adam, AdamW, SGD, Adagrad or Lion");
    if (choice.unsupported.empty()) known += (known.empty() ? "" : ", ") + std::string(choice.name);
    names.emplace_back(choice.name);
  }
  const std::vector<std::string> near = nearest(word, names);
  file.refuse(type, "there is no such type here",
              "there are " + known + ", in any case" + (near.empty() ? "" : "; did you mean " + near.front() + "?"));
}

// Sets what the choice's parameters say, and refuses the parameters of others.
void read_parameters(Translation& file, const std::string& block, const ForeignValue& type, const Choice& choice) {
  std::string allowed;
  for (const Parameter& each : choice.parameters) allowed += (allowed.empty() ? "" : ", ") + std::string(each.name);
  for (const ForeignValue* value : file.in_block(block)) {
    const auto is_it = [&](const Parameter& each) { return each.name == leaf_of(value->name); };
    const auto found = std::find_if(choice.parameters.begin(), choice.parameters.end(), is_it);
    if (found == choice.parameters.end()) {
      throw Error(2101, value->key_place, value->name + " is no parameter of " + type.node.text, "it has " + allowed);
    }
    if (!found->key.empty() && found->key != kLearningRate) file.set(found->key, *value, value->node);
  }
}

// Whether the file leaves the parameter out; "auto" does not, it says that our keys decide.
bool is_left_out(const Translation& file, const std::string& name) {
  return !file.gives(name);
}

void read_betas(Translation& file, const ForeignValue& type, const Choice& choice) {
  const auto has_them = [](const Parameter& each) { return each.name == "betas"; };
  const auto row = std::find_if(choice.parameters.begin(), choice.parameters.end(), has_them);
  if (row == choice.parameters.end()) return;
  if (is_left_out(file, "optimizer.params.betas")) {
    file.set_default("training.adam_beta1", type, "0.9");
    return file.set_default("training.adam_beta2", type, std::string(row->fallback));
  }
  const ForeignValue* betas = file.find("optimizer.params.betas");
  if (betas == nullptr) return;
  if (betas->node.kind != YamlNode::Kind::list || betas->node.items.size() != 2) {
    throw Error(2102, betas->place, "optimizer.params.betas is not a list of two numbers", "write [0.9, 0.999]");
  }
  file.set("training.adam_beta1", *betas, betas->node.items[0]);
  file.set("training.adam_beta2", *betas, betas->node.items[1]);
}

// The scheduler's peak wins over the optimizer's rate.
const ForeignValue* peak_of_scheduler(const Translation& file) {
  for (const char* name : {"scheduler.params.warmup_max_lr", "scheduler.params.cycle_max_lr"}) {
    if (const ForeignValue* peak = file.find(name)) return peak;
  }
  return nullptr;
}

bool is_scheduler(const Translation& file, const std::string& name) {
  const ForeignValue* type = file.find("scheduler.type");
  return type != nullptr && folded(type->node.text) == name;
}

void read_learning_rate(Translation& file) {
  const ForeignValue *rate = file.find("optimizer.params.lr"), *peak = peak_of_scheduler(file);
  if (peak != nullptr) {
    file.set(kLearningRate, *peak, peak->node);
    if (rate != nullptr && parse_number(rate->node.text) == parse_number(peak->node.text)) file.sets_nothing(*rate);
    if (rate != nullptr && parse_number(rate->node.text) != parse_number(peak->node.text)) {
      file.has_no_effect(*rate, peak->name + " " + peak->node.text + " wins, as in DeepSpeed");
    }
  } else if (is_scheduler(file, "warmupdecaylr") && !file.gives("scheduler.params.warmup_max_lr")) {
    file.set_default(kLearningRate, *file.find("scheduler.type"), "1e-3");
    if (rate != nullptr) {
      file.has_no_effect(*rate,
                         "WarmupDecayLR rises to its own warmup_max_lr, as in DeepSpeed, and that is 0.001 "
                         "where it is left out");
    }
  } else if (rate != nullptr) {
    file.set(kLearningRate, *rate, rate->node);
  }
}

}  // namespace

std::vector<ForeignKey> deepspeed_optimizer_and_scheduler_keys() {
  std::vector<ForeignKey> rows = optimizer_rows();
  add(rows, scheduler_rows());
  return rows;
}

void read_deepspeed_optimizer(Translation& file) {
  const ForeignValue* type = file.find("optimizer.type");
  if (type == nullptr) {
    for (const ForeignValue* value : file.in_block("optimizer.params")) {
      if (!value->name.ends_with(".lr")) file.has_no_effect(*value, "optimizer.type is not given");
    }
    return;
  }
  const Choice& choice = choice_of(file, *type, optimizers());
  const ForeignValue* mode = file.find("optimizer.params.adam_w_mode");
  const bool is_l2 = choice.name == "adam" && mode != nullptr && parse_bool(mode->node.text) == false;
  file.set("training.optimizer", *type, is_l2 ? "adam" : std::string(choice.ours));
  if (choice.name == "adam" && !is_l2) {
    file.notice(*type,
                "is read as adamw: DeepSpeed's Adam decays weights apart from the gradient, unless "
                "adam_w_mode is false");
  }
  if (mode != nullptr) file.sets_nothing(*mode);
  read_parameters(file, "optimizer.params", *type, choice);
  read_betas(file, *type, choice);
  for (const Parameter& each : choice.parameters) {
    const bool is_open = is_left_out(file, "optimizer.params." + std::string(each.name));
    const bool is_rate_of_scheduler = each.key == kLearningRate && peak_of_scheduler(file) != nullptr;
    if (is_open && !each.key.empty() && !each.fallback.empty() && !is_rate_of_scheduler) {
      file.set_default(each.key, *type, std::string(each.fallback));
    }
  }
}

void read_deepspeed_scheduler(Translation& file) {
  read_learning_rate(file);
  const ForeignValue* type = file.find("scheduler.type");
  if (type == nullptr) {
    for (const ForeignValue* value : file.in_block("scheduler.params")) {
      file.has_no_effect(*value, "scheduler.type is not given");
    }
    return;
  }
  const Choice& choice = choice_of(file, *type, schedulers());
  file.set("training.lr_scheduler", *type, std::string(choice.ours));
  read_parameters(file, "scheduler.params", *type, choice);
  if (choice.name == "onecycle" && !file.gives("scheduler.params.cycle_momentum")) {
    file.notice(*type, "cycles the learning rate alone: the momentum stays as it is");
  }
}

}  // namespace trireme::config
