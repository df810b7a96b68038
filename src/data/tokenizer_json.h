// Reading JSON that nobody vouches for. Every error names the file and the path of the value inside it.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trireme::data {

// Error TR4103: not readable as JSON, above 256 MiB, nested more than 32 deep, or a key twice in one object.
nlohmann::json read_json_file(const std::filesystem::path& file);

// A value and where it stands. Refers to the document, which must outlive it.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_->is_null(); }

  // A member; null where it is absent. This must be an object (TR4104).
  JsonPlace operator[](const char* key) const;
  JsonPlace at(std::size_t index) const;
  std::size_t array_size() const;  // TR4104 where it is no array

  // TR4104 where the type is another one.
  const std::string& text() const;
  bool boolean() const;
  bool boolean(bool if_absent) const;
  std::int64_t integer() const;

  // TR4105 for a member that is none of these: what it would change is not known.
  void only_keys(std::initializer_list<std::string_view> keys) const;
  [[noreturn]] void wrong_type(std::string_view wanted) const;
  [[noreturn]] void not_supported(const std::string& what) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace trireme::data
