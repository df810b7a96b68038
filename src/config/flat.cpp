#include "config/flat.h"

#include <algorithm>

#include "config/value.h"

namespace trireme::config {
namespace {

constexpr std::string_view kPlace = "default of a flat dictionary";

struct FlatDefault {
  std::string_view key, value;
  std::vector<std::string_view> unless = {};
};

// The first of one key that fits holds.
std::vector<FlatDefault> defaults() {
  return {
      {"training.micro_batch_size", "1", {"training.global_batch_size"}},
      {"training.learning_rate", "1e-4"},
      {"training.mixed_precision", "fp16", {"training.param_dtype"}},
      {"training.gradient_accumulation_steps", "1", {"training.global_batch_size"}},
      {"training.gradient_clipping", "1"},
      {"training.gradient_checkpointing", "none"},
      {"distributed.strategy", "zero2"},
      {"distributed.offload_param", "none"},
      {"distributed.offload_optimizer", "none", {"distributed.offload_param"}},
      {"checkpoint.save_interval", "1000"},
      {"monitor.log_interval", "10"},
  };
}

class Defaults {
 public:
  explicit Defaults(const Merge& given) : given_(given.by_key()) {}

  Settings make() {
    for (const FlatDefault& row : defaults()) add(row.key, fitting(row), row.unless);
    return std::move(result_);
  }

 private:
  bool says(std::string_view key, const Value& value) const {
    const auto found = given_.find(&key_named(key));
    return found != given_.end() && found->second.setting.value == value;
  }

  std::string fitting(const FlatDefault& row) {
    const bool is_open = !given_.contains(&key_named(row.key));
    if (row.key == "distributed.strategy" && is_open && says("distributed.offload_param", std::string("cpu"))) {
      notice("distributed.strategy is zero3 in place of a flat dictionary's zero2: offload_param needs slices");
      return "zero3";
    }
    if (row.key == "training.mixed_precision" && is_open && cannot_scale()) {
      notice(
          "training.mixed_precision is bf16 in place of a flat dictionary's fp16: nonfinite_gradients=stop leaves "
          "fp16 no way to find its scale");
      return "bf16";
    }
    return std::string(row.value);
  }

  bool cannot_scale() const {
    const auto scale = given_.find(&key_named("training.loss_scale"));
    const bool is_fixed =
        scale != given_.end() && scale->second.setting.value != Value() && scale->second.setting.value != Value(0.0);
    return says("training.nonfinite_gradients", std::string("stop")) && !is_fixed;
  }

  void add(std::string_view name, const std::string& text, const std::vector<std::string_view>& unless) {
    const Key& key = key_named(name);
    const YamlNode node{.kind = YamlNode::Kind::scalar, .text = text};
    const Setting setting{read_value(key, node, std::string(kPlace)), std::string(kPlace)};
    result_.soft.push_back({&key, setting, unless, true});
  }

  void notice(const std::string& text) { result_.notices.push_back(text); }

  std::map<const Key*, Merged> given_;
  Settings result_;
};

}  // namespace

bool is_flat(const YamlNode& root) {
  bool has_flat_key = false;
  for (const YamlNode::Entry& entry : root.entries) {
    const Match match = find_key(entry.key);
    if (match.is_lifted && match.key->tier != Tier::foreign) has_flat_key = true;
    for (const std::string_view block : {"training", "distributed", "checkpoint", "monitor"}) {
      if (entry.key == block || entry.key.starts_with(std::string(block) + ".")) return false;
    }
  }
  return has_flat_key;
}

Settings flat_defaults(const Merge& given) {
  return Defaults(given).make();
}

}  // namespace trireme::config
