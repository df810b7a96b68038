#include "base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace trireme {

using nlohmann::json;

namespace {
constexpr const char* kRemedy = "the file is damaged; fetch or write it again";
}

json parse_json_object(const std::string& text, const std::string& place, int code) {
  const auto fail = [&](const std::string& why) { throw Error(code, place, why, kRemedy); };
  if (text.size() > kMaxJsonBytes) fail("has " + std::to_string(text.size()) + " bytes, more than any such file");
  // The library takes a NUL for the end of the text, which would hide what follows.
  if (text.find('\0') != std::string::npos) fail("is no JSON: contains a NUL");
  std::vector<std::set<std::string>> keys;  // of each open object; the library keeps the last of two equal ones
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxJsonDepth) fail("is nested deeper than any such file");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fail("has \"" + parsed.get<std::string>().substr(0, 200) + "\" twice");
    }
    return true;
  };
  json object;
  try {
    object = json::parse(text, watch);
  } catch (const json::exception& error) {
    fail("is no JSON: " + std::string(error.what()).substr(0, 300));
  }
  if (!object.is_object()) fail("is JSON, but no object");
  return object;
}

json read_json_object(const std::filesystem::path& file, int code) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(file, status)) {
    throw Error(code, file.string(), "is missing", "fetch the whole folder again");
  }
  const std::uintmax_t bytes = std::filesystem::file_size(file, status);
  if (!status && bytes > kMaxJsonBytes) {
    throw Error(code, file.string(), "has " + std::to_string(bytes) + " bytes, more than any such file", kRemedy);
  }
  return parse_json_object(read_file(file), file.string(), code);
}

}  // namespace trireme
