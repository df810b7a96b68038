// JSON records that carry their own digest: manifests and attempt files. The text begins with {"digest": "HEX", and the
// digest covers every byte behind that, so that any damage is found before the rest is read.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trireme::checkpoint {

std::string sign(const nlohmann::ordered_json& record);
std::string sign_body(const std::string& body);  // body: the JSON object's text behind its opening brace

// The record without its digest. TR5030: digest or frame; TR5033: no JSON, nested too deep, a key that is there twice.
nlohmann::json open_signed(const std::string& text, const std::string& place);

// Reads members with their types and bounds checked; `where` ("tensors[3].entries[0]") and place name them in errors:
// TR5032 missing, TR5033 another type, TR5034 out of bounds.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string place, std::string where);

  std::string text(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const;
  std::int64_t count(const char* key) const;  // 0 .. 2^63 - 1
  std::uint64_t unsigned_integer(const char* key) const;
  double number(const char* key) const;  // finite
  std::vector<std::int64_t> counts(const char* key, std::size_t max_length) const;
  std::vector<std::string> texts(const char* key) const;
  const nlohmann::json& object(const char* key) const;
  const nlohmann::json& array(const char* key) const;

  [[noreturn]] void fail(int code, const std::string& message) const;

 private:
  const nlohmann::json& at(const char* key) const;
  std::int64_t count_of(const nlohmann::json& value, const char* key) const;

  const nlohmann::json& object_;
  std::string place_, where_;
};

}  // namespace trireme::checkpoint
