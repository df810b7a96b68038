#include "comm/message.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trireme::comm {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 8> kOps = {"set", "get", "check", "failure", "bye", "value", "missing", "break"};
constexpr std::string_view kHexDigits = "0123456789abcdef";

[[noreturn]] void refuse(const std::string& what) {
  throw Error(1115, "control channel", what);
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex.push_back(kHexDigits[byte >> 4]);
    hex.push_back(kHexDigits[byte & 15]);
  }
  return hex;
}

std::string from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) refuse("a value with an odd number of hex digits");
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const std::size_t high = kHexDigits.find(hex[i]), low = kHexDigits.find(hex[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) refuse("a value that is not hex digits");
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return bytes;
}

// Frames are flat: nesting is refused while parsing, before it can use memory.
json parse_flat(std::string_view text) {
  const auto refuse_nesting = [](int depth, json::parse_event_t event, json&) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > 0) refuse("a frame with nested values");
    return true;
  };
  try {
    json object = json::parse(text.begin(), text.end(), refuse_nesting);
    if (!object.is_object()) refuse("a frame that is no object");
    return object;
  } catch (const json::exception& error) {
    refuse(std::string("a frame that is no JSON: ") + error.what());
  }
}

std::string text_of(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) refuse(std::string("a frame without the text ") + field);
  return found->get<std::string>();
}

std::int64_t number_of(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number_integer()) refuse(std::string("a frame without the number ") + field);
  return found->get<std::int64_t>();
}

int small_number_of(const json& object, const char* field) {
  const std::int64_t number = number_of(object, field);
  if (number < -1 || number > 1'000'000'000) refuse(std::string("a frame with an impossible ") + field);
  return static_cast<int>(number);
}

RankFailure failure_of(const json& object, int rank) {
  return {rank, small_number_of(object, "code"), text_of(object, "place"), text_of(object, "message"),
          text_of(object, "remedy")};
}

}  // namespace

std::string encode(const Message& message) {
  using Op = Message::Op;
  json object{{"op", kOps[static_cast<std::size_t>(message.op)]}};
  switch (message.op) {
    case Op::set:
      object["key"] = message.key;
      object["value"] = to_hex(message.value);
      break;
    case Op::get:
    case Op::check:
      object["key"] = message.key;
      object["id"] = message.id;
      break;
    case Op::value: object["value"] = to_hex(message.value); [[fallthrough]];
    case Op::missing: object["id"] = message.id; break;
    case Op::broken: object["rank"] = message.failure.rank; [[fallthrough]];
    case Op::failure:
      object["code"] = message.failure.code;
      object["place"] = message.failure.place;
      object["message"] = message.failure.message;
      object["remedy"] = message.failure.remedy;
      break;
    case Op::bye: break;
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);  // messages may quote bytes that are no UTF-8
}

Message decode(std::string_view text) {
  using Op = Message::Op;
  const json object = parse_flat(text);
  const std::string op = text_of(object, "op");
  const auto found = std::find(kOps.begin(), kOps.end(), op);
  if (found == kOps.end()) refuse("a frame with an unknown op");
  Message message{.op = static_cast<Op>(found - kOps.begin())};
  switch (message.op) {
    case Op::set:
      message.key = text_of(object, "key");
      message.value = from_hex(text_of(object, "value"));
      break;
    case Op::get:
    case Op::check:
      message.key = text_of(object, "key");
      message.id = number_of(object, "id");
      break;
    case Op::value: message.value = from_hex(text_of(object, "value")); [[fallthrough]];
    case Op::missing: message.id = number_of(object, "id"); break;
    case Op::broken: message.failure = failure_of(object, small_number_of(object, "rank")); break;
    case Op::failure: message.failure = failure_of(object, -1); break;
    case Op::bye: break;
  }
  return message;
}

}  // namespace trireme::comm
