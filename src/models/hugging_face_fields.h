// The fields of a config.json, read once each with type and bounds, so that what nobody read can be told.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace trireme {

// A field that is null counts as not given. Errors: TR5060 missing, of another type, out of bounds; TR2260 by refuse().
class HuggingFaceFields {
 public:
  // prefix: "rope_scaling.", for messages. The object must outlive this.
  HuggingFaceFields(const nlohmann::json& object, std::string place, std::string prefix = {});

  bool has(const char* key) const;       // and is not null
  bool is_there(const char* key) const;  // or null
  std::optional<std::int64_t> find_integer(const char* key, std::int64_t low, std::int64_t high);
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high);  // required
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high, std::int64_t fallback);
  std::optional<double> find_number(const char* key, double low, double high);
  double number(const char* key, double low, double high, double fallback);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  std::vector<std::string> texts(const char* key);  // empty: not given
  std::vector<double> numbers(const char* key, double low, double high);
  std::optional<HuggingFaceFields> object(const char* key);

  // Fields that change no number here.
  void ignore(std::initializer_list<std::string_view> keys);
  // Refuses the first field that has not been read, unless it is null.
  void finish() const;

  [[noreturn]] void fail(const std::string& key, const std::string& why) const;    // TR5060
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;  // TR2260
  void require(bool holds, const std::string& key, const std::string& why) const;  // else fail()
  const std::string& place() const { return place_; }

 private:
  const nlohmann::json* take(const char* key);  // nullptr: not given

  const nlohmann::json& object_;
  std::string place_, prefix_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace trireme
