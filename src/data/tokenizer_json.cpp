#include "data/tokenizer_json.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace trireme::data {
namespace {

constexpr std::uintmax_t kMaxFileBytes = 256u << 20;
constexpr int kMaxDepth = 32;

const nlohmann::json kNull;

std::string shown(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 100 ? text : text.substr(0, 100) + "...";
}

// Sees each event of the parser before a value is kept.
class Guard {
 public:
  explicit Guard(std::string place) : place_(std::move(place)) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) throw Error(4103, place_, "JSON nested more than 32 deep", "");
    if (event == Event::object_start) {
      if (keys_.size() < static_cast<std::size_t>(depth) + 1) keys_.resize(depth + 1);
      keys_[depth].clear();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_[depth - 1].insert(key).second) {
        throw Error(4103, place_, "the key " + shown(value) + " stands twice in one object", "keep one of the two");
      }
    }
    return true;
  }

 private:
  std::string place_;
  std::vector<std::unordered_set<std::string>> keys_;  // by depth
};

}  // namespace

nlohmann::json read_json_file(const std::filesystem::path& file) {
  std::error_code status;
  const std::uintmax_t size = std::filesystem::file_size(file, status);
  if (!status && size > kMaxFileBytes) {
    throw Error(4103, file.string(),
                "has " + std::to_string(size) + " bytes, more than any tokenizer's file (256 MiB)");
  }
  const std::string text = read_file(file);
  Guard guard(file.string());
  try {
    return nlohmann::json::parse(text, std::ref(guard));
  } catch (const nlohmann::json::exception& error) {
    throw Error(4103, file.string(), std::string("is not JSON: ") + error.what(), "fetch the file anew");
  }
}

JsonPlace JsonPlace::operator[](const char* key) const {
  if (!value_->is_object()) wrong_type("an object");
  const auto found = value_->find(key);
  return {found == value_->end() ? kNull : *found, place_ + (place_.ends_with(": ") ? "" : ".") + key};
}

JsonPlace JsonPlace::at(std::size_t index) const {
  return {(*value_)[index], place_ + "[" + std::to_string(index) + "]"};
}

std::size_t JsonPlace::array_size() const {
  if (!value_->is_array()) wrong_type("an array");
  return value_->size();
}

const std::string& JsonPlace::text() const {
  if (!value_->is_string()) wrong_type("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonPlace::boolean() const {
  if (value_->is_null()) wrong_type("true or false");
  return boolean(false);
}

bool JsonPlace::boolean(bool if_absent) const {
  if (value_->is_null()) return if_absent;
  if (!value_->is_boolean()) wrong_type("true or false");
  return value_->get<bool>();
}

std::int64_t JsonPlace::integer() const {
  if (!value_->is_number_integer()) wrong_type("an integer");
  if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX) wrong_type("an integer below 2^63");
  return value_->get<std::int64_t>();
}

void JsonPlace::only_keys(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) wrong_type("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      throw Error(4105, place_, "the field \"" + key + "\" = " + shown(value) + " is not known",
                  "what it would change in the ids is not known either, so it is refused");
    }
  }
}

void JsonPlace::wrong_type(std::string_view wanted) const {
  throw Error(4104, place_, "is " + shown(*value_) + ", not " + std::string(wanted));
}

void JsonPlace::not_supported(const std::string& what) const {
  throw Error(
      4105, place_, what + " is not supported: " + shown(*value_),
      "supported: BPE with the normalizers, pre-tokenizers and decoders of Llama, Mistral, Gemma, Qwen and GPT-2");
}

}  // namespace trireme::data
