#include "comm/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace trireme::comm {
namespace {

constexpr std::size_t kHeaderBytes = 4;

std::uint32_t decode_length(const char* header) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kHeaderBytes; ++i) {
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(header[i])) << (8 * i);
  }
  return length;
}

bool write_all(int fd, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t written = ::send(fd, bytes, count, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    count -= static_cast<std::size_t>(written);
  }
  return true;
}

bool read_all(int fd, char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t got = ::recv(fd, bytes, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

std::string frame(const std::string& json) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + json.size());
  for (std::size_t i = 0; i < kHeaderBytes; ++i) bytes.push_back(static_cast<char>(json.size() >> (8 * i)));
  return bytes += json;
}

bool write_frame(int fd, const std::string& json) {
  if (json.size() > kMaxFrameBytes) return false;
  const std::string bytes = frame(json);
  return write_all(fd, bytes.data(), bytes.size());
}

std::optional<std::string> read_frame(int fd) {
  char header[kHeaderBytes];
  if (!read_all(fd, header, kHeaderBytes)) return std::nullopt;
  const std::uint32_t length = decode_length(header);
  if (length > kMaxFrameBytes) return std::nullopt;
  std::string json(length, '\0');
  if (!read_all(fd, json.data(), length)) return std::nullopt;
  return json;
}

std::optional<std::string> FrameReader::next() {
  if (buffer_.size() < kHeaderBytes) return std::nullopt;
  const std::uint32_t length = decode_length(buffer_.data());
  if (length > kMaxFrameBytes) {
    throw Error(1115, "control channel",
                "a frame of " + std::to_string(length) + " bytes; the limit is " + std::to_string(kMaxFrameBytes));
  }
  if (buffer_.size() - kHeaderBytes < length) return std::nullopt;
  std::string json = buffer_.substr(kHeaderBytes, length);
  buffer_.erase(0, kHeaderBytes + length);
  return json;
}

}  // namespace trireme::comm
