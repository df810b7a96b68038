#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace trireme::engine {

using schedule::kNumLanes;

constexpr int kCallersLane = static_cast<int>(schedule::Lane::compute);

Executor::Executor(std::span<const schedule::Program> programs, Run run, std::function<void()> on_failure)
    : run_(std::move(run)), on_failure_(std::move(on_failure)) {
  for (const schedule::Program& program : programs) programs_.push_back(lanes_of(program));
  for (int lane = 0; lane < kNumLanes; ++lane) {
    const bool is_used = std::any_of(programs_.begin(), programs_.end(),
                                     [&](const Lanes& lanes) { return !lanes[lane].instructions.empty(); });
    if (lane != kCallersLane && is_used) threads_.emplace_back([this, lane] { lane_thread(lane); });
  }
}

Executor::Lanes Executor::lanes_of(const schedule::Program& program) {
  Lanes lanes;
  const auto& instructions = program.instructions;
  std::vector<int> position(instructions.size());  // 1-based place within its lane
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    Lane& lane = lanes[static_cast<int>(instructions[i].lane)];
    lane.instructions.push_back(static_cast<int>(i));
    position[i] = static_cast<int>(lane.instructions.size());
  }
  for (const auto& instruction : instructions) {
    std::array<int, kNumLanes> counts{};
    for (const int other : instruction.waits) {
      int& count = counts[static_cast<int>(instructions[other].lane)];
      count = std::max(count, position[other]);
    }
    lanes[static_cast<int>(instruction.lane)].waits.push_back(counts);
  }
  return lanes;
}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Executor::run(int program, std::span<schedule::Span> record) {
  {
    const std::lock_guard lock(mutex_);
    program_ = program;
    record_ = record;
    if (!record_.empty()) start_ = std::chrono::steady_clock::now();
    TRIREME_CHECK(failure_ == nullptr, "an executor that failed was asked to run again");
    for (Lane& lane : lanes()) lane.completed = 0;
    running_ = static_cast<int>(threads_.size());
    ++generation_;
  }
  changed_.notify_all();
  run_lane(lanes()[kCallersLane]);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Executor::lane_thread(int lane) {
  int seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
    }
    run_lane(lanes()[lane]);
    {
      const std::lock_guard lock(mutex_);
      --running_;
    }
    changed_.notify_all();
  }
}

void Executor::run_lane(Lane& lane) {
  try {
    for (std::size_t i = 0; i < lane.instructions.size(); ++i) {
      if (!wait_for(lane.waits[i])) return;
      run_instruction(lane.instructions[i]);
      {
        const std::lock_guard lock(mutex_);
        ++lane.completed;
      }
      changed_.notify_all();
    }
  } catch (...) {
    fail();
  }
}

void Executor::run_instruction(int index) {
  if (record_.empty()) return run_(program_, index);
  const auto now = [this] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); };
  schedule::Span& span = record_[static_cast<std::size_t>(index)];
  span.start = now();
  run_(program_, index);
  span.end = now();
}

bool Executor::wait_for(const std::array<int, kNumLanes>& counts) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    if (failure_ != nullptr) return true;
    for (int lane = 0; lane < kNumLanes; ++lane) {
      if (lanes()[lane].completed < counts[lane]) return false;
    }
    return true;
  });
  return failure_ == nullptr;
}

void Executor::fail() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    failure_ = std::current_exception();
  }
  changed_.notify_all();
  on_failure_();
}

}  // namespace trireme::engine
