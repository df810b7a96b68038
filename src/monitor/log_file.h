// A file that a sink appends to.
#pragma once
#include <cstdint>
#include <filesystem>

namespace trireme::monitor {

enum class IfThere : std::uint8_t { append, refuse };

class LogFile {
 public:
  // Error TR3021 when it cannot be opened, or is there and must not be.
  explicit LogFile(const std::filesystem::path& path, IfThere if_there = IfThere::append);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  ~LogFile();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace trireme::monitor
