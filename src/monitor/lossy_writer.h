// Lines and records written to a descriptor that may fail: a full disk or a closed pipe loses some, never a training
// run.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::monitor {

// Does not own the descriptor. A line that cannot be written is counted; the first loss is told once by log::warn, and
// the count when this goes. A part of a line that did get out is cut off again (regular files) or ended by a newline in
// front of the next line, so that what was written stays whole lines. SIGPIPE must be ignored by the process (main
// does).
class LossyWriter {
 public:
  // torn_end: what ends a part that could not be cut off; binary records have no such thing.
  LossyWriter(int descriptor, std::string name, std::string torn_end = "\n");
  LossyWriter(const LossyWriter&) = delete;
  LossyWriter& operator=(const LossyWriter&) = delete;
  ~LossyWriter();

  void write(std::string_view line);  // whole: with its newline
  std::uint64_t lost() const { return lost_; }

 private:
  int descriptor_;
  std::string name_, torn_end_;
  std::uint64_t lost_ = 0;
  bool torn_ = false;  // the last line written has no end
};

}  // namespace trireme::monitor
