// Runs lowered programs on a device: each lane is a stream, and one thread, the caller's, issues all instructions in
// the order of the program. A wait for another lane's instruction is a wait for an event of its stream; the host waits
// for nothing.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "schedule/simulate.h"

namespace trireme::engine {

class DeviceExecutor {
 public:
  // Issues an instruction; indices of a program and of its instruction. The calling thread's kernels go to the stream
  // of the instruction's lane.
  using Run = std::function<void(int program, int instruction)>;

  // check: asked again and again while the host waits, it throws when that has no end; none: a rank that is alone. What
  // stands still for a peer cannot be broken off while the host is caught in the issue of more than a device's queue
  // holds; so where there are peers, the host goes only some way ahead of what they have still to do together.
  DeviceExecutor(std::span<const schedule::Program> programs, Run run, std::function<void()> check = nullptr);

  // Issues one pass over a program, behind all that was issued before. record: empty, or one span an instruction, which
  // gets the seconds of the device since the pass began; then the host waits for the end of it.
  void run(int program, std::span<schedule::Span> record = {});

  const kernels::Stream& stream(schedule::Lane lane) const { return lanes_[static_cast<int>(lane)]->stream; }
  // The host waits.
  void wait_for(const kernels::Event& event) const;
  void synchronize() const;  // for all that was issued

 private:
  struct Lane {
    kernels::Stream stream;
    kernels::Event end;  // of the pass before
  };
  void read_clocks(std::span<schedule::Span> record) const;
  bool is_bound(const schedule::Instruction& instruction) const;
  void stay_near(int instruction);

  std::span<const schedule::Program> programs_;
  Run run_;
  std::function<void()> check_;
  std::array<std::optional<Lane>, schedule::kNumLanes> lanes_;
  std::vector<std::vector<bool>> is_awaited_;  // by program and instruction: another lane waits for it
  std::vector<kernels::Event> done_;           // by instruction of the program at work
  std::deque<int> under_way_;                  // of it, what peers have a part in
  std::vector<kernels::Event> clocks_;  // its beginning and end, where they are recorded; the pass's beginning last
};

}  // namespace trireme::engine
