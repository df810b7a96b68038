#include "checkpoint/signed_json.h"

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/hash.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kFront = "{\"digest\": \"", kBack = "\",\n";
constexpr std::size_t kHexDigits = 32;
constexpr std::size_t kBodyBegin = kFront.size() + kHexDigits + kBack.size();
constexpr int kMaxDepth = 8;
constexpr const char* kTakeOlder = "the file is damaged; an older checkpoint of the folder may be whole";

}  // namespace

std::string sign_body(const std::string& body) {
  return std::string(kFront) + digest(body) + std::string(kBack) + body;
}

std::string sign(const nlohmann::ordered_json& record) {
  const std::string text = record.dump(1, ' ', false, json::error_handler_t::replace);
  return sign_body(text.substr(text.find_first_not_of("{\n")) + "\n");
}

json open_signed(const std::string& text, const std::string& place) {
  const std::string_view view = text;
  if (view.size() < kBodyBegin || !view.starts_with(kFront) ||
      view.substr(kFront.size() + kHexDigits, kBack.size()) != kBack) {
    throw Error(5030, place, "does not begin with its digest", kTakeOlder);
  }
  const std::string_view body = view.substr(kBodyBegin);
  if (digest(body) != view.substr(kFront.size(), kHexDigits)) {
    throw Error(5030, place, "its digest is another than the one that it carries", kTakeOlder);
  }
  // The library takes a NUL for the end of the text, which would hide what follows.
  if (body.find('\0') != std::string_view::npos) throw Error(5033, place, "is no JSON: contains a NUL", kTakeOlder);
  std::vector<std::set<std::string>> keys;  // of each open object; the library keeps the last of two equal ones
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) throw Error(5033, place, "is nested deeper than any record", kTakeOlder);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw Error(5033, place, "has " + parsed.dump() + " twice", kTakeOlder);
    }
    return true;
  };
  try {
    return json::parse("{" + std::string(body), watch);
  } catch (const json::exception& error) {
    throw Error(5033, place, "is no JSON: " + std::string(error.what()).substr(0, 300), kTakeOlder);
  }
}

Fields::Fields(const json& object, std::string place, std::string where)
    : object_(object), place_(std::move(place)), where_(std::move(where)) {
  if (!object_.is_object()) fail(5033, "must be an object");
}

void Fields::fail(int code, const std::string& message) const {
  throw Error(code, place_, where_.empty() ? message : where_ + ": " + message, kTakeOlder);
}

const json& Fields::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) fail(5032, std::string(key) + " is missing");
  return *found;
}

std::string Fields::text(const char* key) const {
  const json& value = at(key);
  if (!value.is_string()) fail(5033, std::string(key) + " must be text");
  return value.get<std::string>();
}

std::int64_t Fields::count_of(const json& value, const char* key) const {
  if (!value.is_number_integer()) fail(5033, std::string(key) + " must be whole");
  const bool fits = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!fits) fail(5034, std::string(key) + " is " + value.dump() + ", out of bounds");
  return value.get<std::int64_t>();
}

std::int64_t Fields::count(const char* key) const {
  return count_of(at(key), key);
}

std::int64_t Fields::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const std::int64_t value = count(key);
  if (value < low || value > high) fail(5034, std::string(key) + " is " + std::to_string(value) + ", out of bounds");
  return value;
}

std::uint64_t Fields::unsigned_integer(const char* key) const {
  const json& value = at(key);
  if (!value.is_number_unsigned()) fail(5033, std::string(key) + " must be whole and not negative");
  return value.get<std::uint64_t>();
}

double Fields::number(const char* key) const {
  const json& value = at(key);
  if (!value.is_number()) fail(5033, std::string(key) + " must be a number");
  const auto result = value.get<double>();
  if (!std::isfinite(result)) fail(5034, std::string(key) + " is not finite");
  return result;
}

std::vector<std::int64_t> Fields::counts(const char* key, std::size_t max_length) const {
  const json& list = array(key);
  if (list.size() > max_length) fail(5034, std::string(key) + " is too long");
  std::vector<std::int64_t> values;
  for (const json& value : list) values.push_back(count_of(value, key));
  return values;
}

std::vector<std::string> Fields::texts(const char* key) const {
  std::vector<std::string> values;
  for (const json& value : array(key)) {
    if (!value.is_string()) fail(5033, std::string(key) + " must hold text");
    values.push_back(value.get<std::string>());
  }
  return values;
}

const json& Fields::object(const char* key) const {
  const json& value = at(key);
  if (!value.is_object()) fail(5033, std::string(key) + " must be an object");
  return value;
}

const json& Fields::array(const char* key) const {
  const json& value = at(key);
  if (!value.is_array()) fail(5033, std::string(key) + " must be a list");
  return value;
}

}  // namespace trireme::checkpoint
