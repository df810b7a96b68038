// FSDP's options in the spelling of accelerate 1.15 (utils/dataclasses.py), transformers (training_args.py) and the
// training guides: a JSON file, a block, or keys of a configuration.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"
#include "config/dialects.h"
#include "config/value.h"

namespace trireme::config {
namespace {

constexpr auto kMapped = Fate::mapped, kNoEffect = Fate::no_effect, kRefused = Fate::refused;

std::vector<Synonym> strategies() {
  return {{"full_shard", "full_shard"},
          {"shard_grad_op", "shard_grad_op"},
          {"no_shard", "no_shard"},
          {"hybrid_shard", "hybrid_shard"},
          {"hybrid_shard_zero2", "hybrid_shard"},
          {"_hybrid_shard_zero2", "hybrid_shard"},
          {"1", "full_shard"},
          {"2", "shard_grad_op"},
          {"3", "no_shard"},
          {"4", "hybrid_shard"},
          {"5", "hybrid_shard"}};
}

std::vector<Synonym> policies() {
  return {{"transformer_based_wrap", "transformer"},
          {"transformer_auto_wrap", "transformer"},
          {"transformer_auto_wrap_policy", "transformer"},
          {"size_based_wrap", "size"},
          {"size_based_auto_wrap", "size"},
          {"size_based_auto_wrap_policy", "size"},
          {"no_wrap", "none"},
          {"none", "none"}};
}

std::vector<Synonym> prefetches() {
  return {{"backward_pre", "1"}, {"backward_post", "0"}, {"no_prefetch", "0"}, {"none", "0"}};
}

std::vector<Synonym> state_dicts() {
  return {
      {"full_state_dict", ""}, {"local_state_dict", ""}, {"sharded_state_dict", ""}, {"1", ""}, {"2", ""}, {"3", ""}};
}

std::vector<ForeignKey> sharding_keys() {
  return {
      {.name = "use_fsdp", .type = Type::boolean, .doc = "false: no key of FSDP has an effect."},
      {.name = "fsdp", .doc = "transformers' words: a strategy, auto_wrap, offload; or true or false."},
      {.name = "fsdp_version", .fate = kNoEffect, .doc = "the keys of both versions are read alike"},
      {.name = "fsdp_sharding_strategy", .key = "distributed.strategy", .values = strategies()},
      {.name = "fsdp_reshard_after_forward",
       .doc = "true: full_shard; false: shard_grad_op. In version 1 another name of fsdp_sharding_strategy."},
      {.name = "fsdp_offload_params", .key = "distributed.offload_param", .names = {"fsdp_cpu_offload"}},
      {.name = "fsdp_auto_wrap_policy", .values = policies(), .doc = "distributed.auto_wrap"},
      {.name = "fsdp_transformer_layer_cls_to_wrap",
       .type = Type::texts,
       .doc = "distributed.wrap_classes, as a list or one text with commas; auto_wrap transformer."},
      {.name = "fsdp_min_num_params",
       .type = Type::integer,
       .doc = "distributed.min_num_params; with the transformer policy blocks of fewer parameters are stored with "
              "their neighbours."},
      {.name = "fsdp_backward_prefetch", .values = prefetches(), .doc = "distributed.gather_ahead"},
      {.name = "fsdp_backward_prefetch_policy",
       .fate = kMapped,
       .values = prefetches(),
       .doc = "is the old name of fsdp_backward_prefetch, and read as it"},
      {.name = "fsdp_forward_prefetch", .type = Type::boolean, .doc = "true: distributed.gather_ahead is 1."},
      {.name = "fsdp_activation_checkpointing", .key = "training.gradient_checkpointing"},
      {.name = "fsdp_activation_checkpointing_offload", .key = "training.cpu_checkpointing"},
      {.name = "fsdp_state_dict_type",
       .fate = kMapped,
       .values = state_dicts(),
       .doc = "is read as FULL_STATE_DICT: checkpoints are saved whole until sharded checkpoints exist"},
  };
}

std::vector<ForeignKey> precision_keys_of_fsdp() {
  return {
      {.name = "fsdp_mixed_precision",
       .doc = "A type: training.mixed_precision. FULL: no. true: what the types below or training.mixed_precision say, "
              "else bf16. false: nothing."},
      {.name = "fsdp_param_dtype", .names = {"fsdp_mixed_precision_policy.param_dtype"}, .doc = "training.param_dtype"},
      {.name = "fsdp_reduce_dtype",
       .names = {"fsdp_mixed_precision_policy.reduce_dtype"},
       .doc = "training.reduce_dtype"},
      {.name = "fsdp_buffer_dtype",
       .fate = kNoEffect,
       .names = {"fsdp_mixed_precision_policy.buffer_dtype"},
       .doc = "these models have no buffers"},
      {.name = "fsdp_mixed_precision_policy.output_dtype",
       .fate = kRefused,
       .doc = "a unit gives its outputs in the type of the computation"},
  };
}

std::vector<ForeignKey> other_keys_of_fsdp() {
  constexpr std::string_view kTpu = "it is for TPUs", kHooks = "it is Python code, and there is none here";
  return {
      {.name = "fsdp_use_orig_params",
       .fate = kNoEffect,
       .type = Type::boolean,
       .doc = "frozen and trained parameters are in groups of their own, always"},
      {.name = "fsdp_sync_module_states",
       .fate = kNoEffect,
       .type = Type::boolean,
       .doc = "every rank draws or reads the same weights"},
      {.name = "fsdp_cpu_ram_efficient_loading",
       .fate = kNoEffect,
       .type = Type::boolean,
       .doc = "each rank reads only what it keeps"},
      {.name = "fsdp_limit_all_gathers",
       .fate = kNoEffect,
       .type = Type::boolean,
       .doc = "the schedule bounds what is gathered at a time (distributed.gather_ahead, max_live_parameters)"},
      {.name = "fsdp_ignored_modules", .fate = kRefused, .doc = "all parameters follow one strategy"},
      {.name = "fsdp_cuda_graphs", .fate = kRefused, .doc = "CUDA graphs are later work"},
      {.name = "fsdp_param_init_fn", .fate = kRefused, .doc = kHooks},
      {.name = "fsdp_state_dict_config", .fate = kRefused, .doc = kHooks},
      {.name = "fsdp_optim_state_dict_config", .fate = kRefused, .doc = kHooks},
      {.name = "xla", .fate = kRefused, .doc = kTpu},
      {.name = "xla_fsdp_v2", .fate = kRefused, .doc = kTpu},
      {.name = "xla_fsdp_settings", .fate = kRefused, .doc = kTpu},
      {.name = "xla_fsdp_grad_ckpt", .fate = kRefused, .doc = kTpu},
  };
}

std::string word_of(const ForeignValue& value) {
  return folded(value.node.text);
}

std::string meaning_of(const ForeignValue& value, const std::vector<Synonym>& words) {
  const auto is_word = [&](const Synonym& each) { return each.word == word_of(value); };
  return std::string(std::find_if(words.begin(), words.end(), is_word)->meaning);
}

bool is_strategy(std::string_view word) {
  const std::vector<Synonym> words = strategies();
  return std::any_of(words.begin(), words.end(), [&](const Synonym& each) { return each.word == word; });
}

bool keeps_gathered(std::string_view word) {
  return word == "hybrid_shard_zero2" || word == "_hybrid_shard_zero2" || word == "5";
}

// As shard_grad_op does it: from the forward to the backward nothing is released.
void keep_gathered(Translation& file, const ForeignValue& from) {
  file.set("distributed.reuse_distance", from, "1e15");
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    if (!word.empty()) words.emplace_back(word);
    begin = end + 1;
  }
  return words;
}

std::vector<std::string> words_of(const ForeignValue& value, std::string_view separators) {
  if (value.node.kind == YamlNode::Kind::scalar) return split(value.node.text, separators);
  std::vector<std::string> words;
  for (const YamlNode& item : value.node.items) {
    for (const std::string& word : split(item.text, separators)) words.push_back(word);
  }
  return words;
}

void read_words(Translation& file, const ForeignValue& from) {
  if (parse_bool(from.node.text) == true) return file.set_softly("distributed.strategy", from, "full_shard");
  std::string strategy;
  bool offloads = false;
  for (const std::string& each : words_of(from, " ,")) {
    const std::string word = folded(each);
    if (word == "offload") {
      offloads = true;
    } else if (word != "auto_wrap") {
      if (!is_strategy(word)) {
        throw Error(2102, from.place, "fsdp has the word " + shown(each),
                    "its words are full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, offload, "
                    "auto_wrap");
      }
      if (!strategy.empty()) {
        throw Error(2104, from.place,
                    std::string("fsdp names the strategies ").append(strategy).append(" and ").append(word),
                    "keep one of them");
      }
      strategy = word;
    }
  }
  if (offloads && strategy.empty()) {
    throw Error(2104, from.place, "fsdp says offload, but names no strategy", "write fsdp: full_shard offload");
  }
  if (strategy.empty()) return file.set_softly("distributed.strategy", from, "full_shard");
  const auto is_it = [&](const Synonym& each) { return each.word == strategy; };
  const std::vector<Synonym> known = strategies();
  file.set("distributed.strategy", from, std::string(std::find_if(known.begin(), known.end(), is_it)->meaning));
  if (keeps_gathered(strategy)) keep_gathered(file, from);
  if (offloads) file.set("distributed.offload_param", from, "cpu");
}

bool is_set(const Translation& file, std::string_view key) {
  return file.settings().by_key.contains(&key_named(key));
}

void read_reshard(Translation& file, const ForeignValue& from) {
  const ForeignValue* version = file.find("fsdp_version");
  const ForeignValue* given = file.find("fsdp_sharding_strategy");
  const std::optional<bool> releases = parse_bool(from.node.text);
  if (!releases && !is_strategy(word_of(from))) {
    throw Error(2102, from.place, "fsdp_reshard_after_forward is " + shown(from.node.text),
                "it takes true, false or, in version 1, the name of a strategy");
  }
  const bool is_first = version != nullptr && version->node.text == "1";
  if (is_first && (releases || given != nullptr)) {
    return file.has_no_effect(from, "in version 1 fsdp_sharding_strategy decides");
  }
  if (!releases) {
    file.set("distributed.strategy", from, meaning_of(from, strategies()));
    return keeps_gathered(word_of(from)) ? keep_gathered(file, from) : void();
  }
  const std::string strategy = given == nullptr ? "" : meaning_of(*given, strategies());
  if (strategy == "hybrid_shard" || (strategy == "no_shard" && !*releases)) {
    return *releases || strategy == "no_shard" ? file.sets_nothing(from) : keep_gathered(file, from);
  }
  file.set("distributed.strategy", from, *releases ? "full_shard" : "shard_grad_op");
}

void check_version(const ForeignValue* version) {
  if (version == nullptr || version->node.text == "1" || version->node.text == "2") return;
  throw Error(2102, version->place, "fsdp_version is " + shown(version->node.text), "there are versions 1 and 2");
}

void read_strategy(Translation& file) {
  check_version(file.find("fsdp_version"));
  if (const ForeignValue* words = file.find("fsdp")) read_words(file, *words);
  const ForeignValue* strategy = file.find("fsdp_sharding_strategy");
  if (strategy != nullptr && keeps_gathered(word_of(*strategy))) keep_gathered(file, *strategy);
  if (const ForeignValue* reshard = file.find("fsdp_reshard_after_forward")) read_reshard(file, *reshard);
  if (const ForeignValue* use = file.find("use_fsdp")) {
    file.set_softly("distributed.strategy", *use, "full_shard");
  } else if (!is_set(file, "distributed.strategy") && file.settings().soft.empty() && !file.in_block("").empty()) {
    const ForeignValue& first = *file.in_block("").front();
    file.set_softly("distributed.strategy", first, "full_shard");
    file.notice(first, "turns FSDP on: distributed.strategy is full_shard, unless it is set");
  }
}

// Which units are stored together. With a bound neighbours are joined until they have so many parameters.
void wrap(Translation& file, const ForeignValue& from, const std::string& policy, const ForeignValue* least) {
  const bool has_bound = least != nullptr && parse_integer(least->node.text).value_or(0) != 0;
  if (policy == "none" || (policy == "size" && least != nullptr && !has_bound)) {
    file.set("distributed.auto_wrap", from, "none");
    if (least != nullptr) file.has_no_effect(*least, policy == "none" ? "nothing is wrapped" : "0 wraps nothing");
    return;
  }
  if (policy == "transformer" && has_bound) {
    file.notice(*least,
                "is a lower bound: blocks of fewer parameters are stored with their neighbours "
                "(distributed.auto_wrap=size)");
  }
  file.set("distributed.auto_wrap", from, has_bound ? "size" : policy);
  if (has_bound) return file.set("distributed.min_num_params", *least, least->node);
  if (least != nullptr) file.sets_nothing(*least);
}

void read_wrapping(Translation& file) {
  const ForeignValue* policy = file.find("fsdp_auto_wrap_policy");
  const ForeignValue* classes = file.find("fsdp_transformer_layer_cls_to_wrap");
  const ForeignValue* least = file.find("fsdp_min_num_params");
  if (classes != nullptr) {
    YamlNode list{.kind = YamlNode::Kind::list, .mark = classes->node.mark};
    for (const std::string& word : words_of(*classes, ",")) {
      list.items.push_back(YamlNode{.kind = YamlNode::Kind::scalar, .mark = classes->node.mark, .text = word});
    }
    file.set("distributed.wrap_classes", *classes, list);
  }
  if (policy != nullptr) {
    wrap(file, *policy, meaning_of(*policy, policies()), least);
  } else if (classes != nullptr) {
    wrap(file, *classes, "transformer", least);
  } else if (least != nullptr && parse_integer(least->node.text).value_or(0) != 0) {
    wrap(file, *least, "size", least);
  } else if (least != nullptr) {
    file.sets_nothing(*least);
  }
}

void read_prefetch(Translation& file) {
  const ForeignValue* forward = file.find("fsdp_forward_prefetch");
  const bool ahead = forward != nullptr && parse_bool(forward->node.text) == true;
  bool is_said = false;
  for (const char* name : {"fsdp_backward_prefetch", "fsdp_backward_prefetch_policy"}) {
    const ForeignValue* backward = file.find(name);
    if (backward == nullptr) continue;
    is_said = true;
    file.set("distributed.gather_ahead", *backward, ahead ? "1" : meaning_of(*backward, prefetches()));
  }
  if (forward == nullptr) return;
  if (ahead) return file.set("distributed.gather_ahead", *forward, "1");
  file.has_no_effect(*forward, is_said ? "forward and backward gather equally far ahead"
                                       : "distributed.gather_ahead says how far ahead units are gathered");
}

void read_precision(Translation& file) {
  const ForeignValue* mixed = file.find("fsdp_mixed_precision");
  const std::string word = mixed == nullptr ? "" : word_of(*mixed);
  const bool says_true = parse_bool(word) == true, says_false = parse_bool(word) == false;
  const bool is_full = word == "full" || word == "fp32" || word == "float32";
  const bool is_off = is_full || says_false;
  const ForeignValue* param = file.find("fsdp_param_dtype");
  const ForeignValue* reduce = file.find("fsdp_reduce_dtype");
  if (param != nullptr && !is_off) file.set("training.param_dtype", *param, param->node);
  if (reduce != nullptr && !is_off) file.set("training.reduce_dtype", *reduce, reduce->node);
  for (const ForeignValue* dtype : {param, reduce}) {
    if (dtype != nullptr && is_off) file.has_no_effect(*dtype, "fsdp_mixed_precision is " + word);
  }
  if (mixed == nullptr) return;
  if (says_false) return file.sets_nothing(*mixed);
  if (!says_true) return file.set("training.mixed_precision", *mixed, is_full ? "no" : word);
  if (param != nullptr) return file.sets_nothing(*mixed);
  file.set_softly("training.mixed_precision", *mixed, "bf16", {"training.param_dtype"});
  file.notice(*mixed, "names no type: bf16, unless training.mixed_precision is set");
}

void fsdp_rules(Translation& file) {
  const ForeignValue* use = file.find("use_fsdp");
  const ForeignValue* words = file.find("fsdp");
  if (use != nullptr && parse_bool(use->node.text) == false) return file.switch_off("use_fsdp is false");
  if (words != nullptr && (words_of(*words, " ").empty() || parse_bool(words->node.text) == false)) {
    return file.switch_off("fsdp is off");
  }
  read_strategy(file);
  read_wrapping(file);
  read_prefetch(file);
  read_precision(file);
}

std::vector<ForeignKey> fsdp_keys() {
  std::vector<ForeignKey> rows;
  for (const auto& part : {sharding_keys(), precision_keys_of_fsdp(), other_keys_of_fsdp()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace

const Dialect& fsdp_dialect() {
  static const Dialect dialect{
      .tool = "FSDP", .keys = fsdp_keys(), .rules = fsdp_rules, .underscore_is_comment = true, .prefix = "fsdp_"};
  return dialect;
}

}  // namespace trireme::config
