// Lines written to a descriptor that may fail: a full disk or a closed pipe loses lines, never a training run.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::monitor {

// Does not own the descriptor. A line that cannot be written is counted; the first loss is told once by log::warn, and
// the count when this goes. A part of a line that did get out is cut off again (regular files) or ended by the next
// newline, so that what was written stays whole lines. SIGPIPE must be ignored by the process (main does).
class LossyWriter {
 public:
  LossyWriter(int descriptor, std::string name);
  LossyWriter(const LossyWriter&) = delete;
  LossyWriter& operator=(const LossyWriter&) = delete;
  ~LossyWriter();

  void write(std::string_view line);  // with its newline
  std::uint64_t lost() const { return lost_; }

 private:
  int descriptor_;
  std::string name_;
  std::uint64_t lost_ = 0;
  bool torn_ = false;  // the last line written has no newline
};

}  // namespace trireme::monitor
