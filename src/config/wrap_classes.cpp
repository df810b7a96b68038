#include "config/wrap_classes.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "config/document.h"

namespace trireme::config {
namespace {

struct BlockClass {
  std::string_view family, name;
};

// transformers 4 and 5, models/FAMILY/modeling_FAMILY.py.
constexpr BlockClass kClasses[] = {
    {"llama", "LlamaDecoderLayer"},        {"mistral", "MistralDecoderLayer"},
    {"qwen2", "Qwen2DecoderLayer"},        {"qwen3", "Qwen3DecoderLayer"},
    {"gemma", "GemmaDecoderLayer"},        {"gemma2", "Gemma2DecoderLayer"},
    {"gemma3_text", "Gemma3DecoderLayer"}, {"gpt2", "GPT2Block"},
};

}  // namespace

void check_wrap_classes(Plan& plan) {
  const std::vector<std::string>& given = plan.distributed.wrap_classes;
  const auto row = std::find_if(std::begin(kClasses), std::end(kClasses),
                                [&](const BlockClass& each) { return each.family == plan.model.family; });
  if (given.empty() || row == std::end(kClasses)) return;
  std::string others;
  for (const std::string& name : given) {
    if (name != row->name) others += (others.empty() ? "" : ", ") + shown(name);
  }
  const std::string& place = plan.origins.at("distributed.wrap_classes").place;
  const std::string model = "a " + plan.model.family + " model";
  if (std::find(given.begin(), given.end(), row->name) == given.end()) {
    throw Error(
        2104, place, "wraps " + others + ", but the blocks of " + model + " are " + std::string(row->name),
        "name " + std::string(row->name) + ", or leave the classes out: each block is wrapped by itself anyway");
  }
  if (!others.empty()) plan.notices.push_back(place + ": " + others + " has no effect: no class of " + model);
}

}  // namespace trireme::config
