#include "monitor/event_file.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace trireme::monitor {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82F63B78;

constexpr std::array<std::uint32_t, 256> kCrcOfByte = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}();

// The CRC of data that holds CRCs is weak, so what is stored is turned and shifted.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8;
}

template <class Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Word); ++i) bytes.push_back(static_cast<char>(word >> (8 * i) & 0xFF));
  return bytes;
}

// A protobuf message under construction.
class Message {
 public:
  Message& integer(int field, std::uint64_t value) {
    tag(field, kVarint);
    varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) {
    tag(field, kFixed64);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& fixed32(int field, float value) {
    tag(field, kFixed32);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    tag(field, kLengthDelimited);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }
  const std::string& str() const { return bytes_; }

 private:
  enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

  void tag(int field, WireType type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// Fields of Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.
Message event(double wall_time, std::int64_t step) {
  return Message().fixed64(1, wall_time).integer(2, static_cast<std::uint64_t>(step));
}

float narrowed(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) <= kMost || std::isnan(value)) return static_cast<float>(value);
  return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(std::copysign(1.0, value)));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcOfByte[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::string framed(std::string_view record) {
  const std::string length = little_endian(static_cast<std::uint64_t>(record.size()));
  std::string bytes = length + little_endian(masked_crc(length));
  bytes += record;
  return bytes + little_endian(masked_crc(record));
}

std::string version_event(double wall_time) {
  return Message().fixed64(1, wall_time).bytes(3, "brain.Event:2").str();
}

std::string start_event(double wall_time, std::int64_t next_step) {
  constexpr int kSessionStart = 1;
  return event(wall_time, next_step).message(7, Message().integer(1, kSessionStart)).str();
}

std::string scalars_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    summary.message(1, Message().bytes(1, scalar.tag).fixed32(2, narrowed(scalar.value)));
  }
  return event(wall_time, step).message(5, summary).str();
}

std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown) {
  constexpr int kString = 7, kTensorData = 2;
  const Message shape = Message().message(2, Message().integer(1, 1));  // one dim of size 1
  const Message tensor = Message().integer(1, kString).message(2, shape).bytes(8, markdown);
  const Message metadata = Message().message(1, Message().bytes(1, "text")).integer(4, kTensorData);
  const Message value = Message().bytes(1, tag).message(8, tensor).message(9, metadata);
  return event(wall_time, step).message(5, Message().message(1, value)).str();
}

}  // namespace trireme::monitor
