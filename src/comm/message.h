// The frames of wire.h as values. Read from the other side of a socket, so anything that is no such frame is an error
// (TR1115), never a crash.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/control.h"

namespace trireme::comm {

struct Message {
  enum class Op : std::uint8_t { set, get, check, failure, bye, value, missing, broken };
  Op op = Op::bye;
  std::string key;      // set, get, check
  std::string value;    // set, value: any bytes
  std::int64_t id = 0;  // get, check, value, missing: which question is answered
  RankFailure failure;  // failure, broken; the agent knows the rank of a failure by its socket
};

std::string encode(const Message& message);
Message decode(std::string_view json);

}  // namespace trireme::comm
