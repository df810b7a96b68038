// The agent's socket protocol: frames of a 4-byte little-endian length and a flat JSON object, over a socketpair a
// worker.
//
// worker -> agent   {"op":"set","key":K,"value":HEX}
//                   {"op":"get","key":K,"id":N}      answered when the key exists
//                   {"op":"check","key":K,"id":N}    answered at once
//                   {"op":"failure","code":..,"place":..,"message":..,"remedy":..}
//                   {"op":"bye"}
// agent -> worker   {"op":"value","id":N,"value":HEX}
//                   {"op":"missing","id":N}
//                   {"op":"break","rank":R,"code":..,"place":..,"message":..,"remedy":..}
// A frame over 16 MiB or that is no such object ends the connection (untrusted input never crashes the agent).
// message.h turns frames into values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme::comm {

inline constexpr std::uint32_t kMaxFrameBytes = 16u << 20;

// Blocking, for workers. False / empty at end of stream; errors too.
bool write_frame(int fd, const std::string& json);
std::optional<std::string> read_frame(int fd);

// The bytes of a frame, for the agent's output buffers. json.size() <= kMaxFrameBytes.
std::string frame(const std::string& json);

// Incremental, for the agent's poll loop.
class FrameReader {
 public:
  void feed(const char* bytes, std::size_t count) { buffer_.append(bytes, count); }
  std::optional<std::string> next();  // throws Error TR1115 for an oversized frame

 private:
  std::string buffer_;
};

}  // namespace trireme::comm
