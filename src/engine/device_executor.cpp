#include "engine/device_executor.h"

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace trireme::engine {

using schedule::Instruction;

// Instructions that are issued beyond the oldest collective which is not done: far fewer kernels than a queue holds,
// and few collectives, each of which delays an abort.
constexpr int kMostAhead = 32;

DeviceExecutor::DeviceExecutor(std::span<const schedule::Program> programs, Run run, std::function<void()> check)
    : programs_(programs), run_(std::move(run)), check_(std::move(check)) {
  lanes_[static_cast<int>(schedule::Lane::compute)].emplace();
  std::size_t most = 0;
  for (const schedule::Program& program : programs) {
    const std::vector<Instruction>& instructions = program.instructions;
    std::vector<bool>& awaited = is_awaited_.emplace_back(instructions.size(), false);
    most = std::max(most, instructions.size());
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      std::optional<Lane>& lane = lanes_[static_cast<int>(instructions[i].lane)];
      if (!lane) lane.emplace(Lane{kernels::Stream(true), kernels::Event()});
      if (is_bound(instructions[i])) awaited[i] = true;
      for (const int other : instructions[i].waits) {
        TRIREME_CHECK(other < static_cast<int>(i), "an instruction waits for one that is issued later");
        if (instructions[other].lane != instructions[i].lane) awaited[other] = true;
      }
    }
  }
  done_.resize(most);
}

// To what peers do; COUNT is the host's alone.
bool DeviceExecutor::is_bound(const Instruction& instruction) const {
  return check_ != nullptr && schedule::is_collective(instruction) && instruction.op != schedule::Op::count;
}

void DeviceExecutor::stay_near(int instruction) {
  while (!under_way_.empty()) {
    const int oldest = under_way_.front();
    if (instruction - oldest > kMostAhead) {
      wait_for(done_[oldest]);
    } else if (!done_[oldest].is_reached()) {
      return;
    }
    under_way_.pop_front();
  }
}

void DeviceExecutor::run(int program, std::span<schedule::Span> record) {
  const std::vector<Instruction>& instructions = programs_[program].instructions;
  under_way_.clear();
  for (const std::optional<Lane>& lane : lanes_) {
    for (const std::optional<Lane>& other : lanes_) {
      if (lane && other && &lane != &other) lane->stream.wait(other->end);
    }
  }
  if (!record.empty()) {
    while (clocks_.size() < 2 * instructions.size() + 1) clocks_.emplace_back(true);
    clocks_.back().record(stream(schedule::Lane::compute));
  }
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    stay_near(static_cast<int>(i));
    const kernels::Stream& stream = this->stream(instruction.lane);
    for (const int other : instruction.waits) {
      if (instructions[other].lane != instruction.lane) stream.wait(done_[other]);
    }
    const kernels::OnStream on(stream);
    if (!record.empty()) clocks_[2 * i].record(stream);
    run_(program, static_cast<int>(i));
    if (!record.empty()) clocks_[2 * i + 1].record(stream);
    if (is_awaited_[program][i]) done_[i].record(stream);
    if (is_bound(instruction)) under_way_.push_back(static_cast<int>(i));
  }
  for (std::optional<Lane>& lane : lanes_) {
    if (lane) lane->end.record(lane->stream);
  }
  if (!record.empty()) read_clocks(record);
}

void DeviceExecutor::read_clocks(std::span<schedule::Span> record) const {
  synchronize();
  for (std::size_t i = 0; i < record.size(); ++i) {
    record[i] = {kernels::seconds_between(clocks_.back(), clocks_[2 * i]),
                 kernels::seconds_between(clocks_.back(), clocks_[2 * i + 1])};
  }
}

void DeviceExecutor::wait_for(const kernels::Event& event) const {
  if (check_ == nullptr) return event.synchronize();
  while (!event.is_reached()) {
    check_();
    std::this_thread::yield();
  }
}

void DeviceExecutor::synchronize() const {
  for (const std::optional<Lane>& lane : lanes_) {
    if (lane) lane->end.record(lane->stream);
  }
  for (const std::optional<Lane>& lane : lanes_) {
    if (lane) wait_for(lane->end);
  }
}

}  // namespace trireme::engine
