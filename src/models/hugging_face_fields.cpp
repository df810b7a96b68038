#include "models/hugging_face_fields.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace trireme {

using nlohmann::json;

namespace {

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

}  // namespace

HuggingFaceFields::HuggingFaceFields(const json& object, std::string place, std::string prefix)
    : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {}

void HuggingFaceFields::fail(const std::string& key, const std::string& why) const {
  throw Error(5060, place_, prefix_ + key + " " + why, "the file is damaged, or not the config.json of such a model");
}

void HuggingFaceFields::refuse(const std::string& key, const std::string& why) const {
  throw Error(2260, place_, prefix_ + key + " " + why,
              "this model cannot be trained here: the families are Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3 (text) "
              "and GPT-2");
}

void HuggingFaceFields::require(bool holds, const std::string& key, const std::string& why) const {
  if (!holds) fail(key, why);
}

bool HuggingFaceFields::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

bool HuggingFaceFields::is_there(const char* key) const {
  return object_.contains(key);
}

const json* HuggingFaceFields::take(const char* key) {
  used_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> HuggingFaceFields::find_integer(const char* key, std::int64_t low, std::int64_t high) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  // Some writers have 8192.0.
  const bool whole_number = value->is_number_float() && value->get<double>() == std::floor(value->get<double>()) &&
                            std::abs(value->get<double>()) < 1e15;
  require(value->is_number_integer() || whole_number, key, "is " + shown(*value) + ", an integer is due");
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{1} << 62;
  const std::int64_t number =
      whole_number ? static_cast<std::int64_t>(value->get<double>()) : (too_large ? high : value->get<std::int64_t>());
  require(!too_large && number >= low && number <= high, key,
          "is " + shown(*value) + ", outside " + std::to_string(low) + " to " + std::to_string(high));
  return number;
}

std::int64_t HuggingFaceFields::integer(const char* key, std::int64_t low, std::int64_t high) {
  const auto value = find_integer(key, low, high);
  require(value.has_value(), key, "is missing");
  return *value;
}

std::int64_t HuggingFaceFields::integer(const char* key, std::int64_t low, std::int64_t high, std::int64_t fallback) {
  return find_integer(key, low, high).value_or(fallback);
}

std::optional<double> HuggingFaceFields::find_number(const char* key, double low, double high) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  require(value->is_number(), key, "is " + shown(*value) + ", a number is due");
  const auto number = value->get<double>();
  require(number >= low && number <= high, key, "is " + shown(*value) + ", which is out of bounds");
  return number;
}

double HuggingFaceFields::number(const char* key, double low, double high, double fallback) {
  return find_number(key, low, high).value_or(fallback);
}

bool HuggingFaceFields::boolean(const char* key, bool fallback) {
  const json* value = take(key);
  if (value == nullptr) return fallback;
  require(value->is_boolean(), key, "is " + shown(*value) + ", true or false is due");
  return value->get<bool>();
}

std::string HuggingFaceFields::text(const char* key, const std::string& fallback) {
  const json* value = take(key);
  if (value == nullptr) return fallback;
  require(value->is_string(), key, "is " + shown(*value) + ", a word is due");
  return value->get<std::string>();
}

std::vector<std::string> HuggingFaceFields::texts(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return {};
  require(value->is_array(), key, "is " + shown(*value) + ", a list of words is due");
  std::vector<std::string> words;
  for (const json& item : *value) {
    require(item.is_string(), key, "has " + shown(item) + ", a word is due");
    words.push_back(item.get<std::string>());
  }
  return words;
}

std::vector<double> HuggingFaceFields::numbers(const char* key, double low, double high) {
  const json* value = take(key);
  if (value == nullptr) return {};
  require(value->is_array(), key, "is " + shown(*value) + ", a list of numbers is due");
  std::vector<double> numbers;
  for (const json& item : *value) {
    require(item.is_number() && item.get<double>() >= low && item.get<double>() <= high, key,
            "has " + shown(item) + ", which is no number or out of bounds");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::optional<HuggingFaceFields> HuggingFaceFields::object(const char* key) {
  const json* value = take(key);
  if (value == nullptr) return std::nullopt;
  require(value->is_object(), key, "is " + shown(*value) + ", an object is due");
  return HuggingFaceFields(*value, place_, prefix_ + key + ".");
}

void HuggingFaceFields::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) used_.emplace(key);
}

void HuggingFaceFields::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (!value.is_null() && !used_.contains(key)) {
      refuse(key.substr(0, 100), "is " + shown(value) + ", a field that Trireme does not know");
    }
  }
}

}  // namespace trireme
