// Runs lowered programs, one at a time: each lane in issue order, an instruction once its waits have completed.
//
// The compute lane runs on the thread that calls run(), every other lane that a program uses on a thread of the
// executor's own, for its whole life. Knows order only; what an instruction does is the caller's function.
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "schedule/simulate.h"

namespace trireme::engine {

class Executor {
 public:
  // Indices of a program and of its instruction; called on the lane's thread.
  using Run = std::function<void(int program, int instruction)>;

  // on_failure is called once, from the failing lane's thread, when an instruction
  // throws: it frees the other lanes from a collective that will not complete.
  Executor(std::span<const schedule::Program> programs, Run run, std::function<void()> on_failure);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One pass over a program; returns when every lane has drained. Rethrows the first exception of any lane; the
  // executor cannot run again after that. record: empty, or one span an instruction, which gets the seconds since run()
  // was called at which it started, after its waits, and ended. No clock is read where it is empty.
  void run(int program = 0, std::span<schedule::Span> record = {});

 private:
  struct Lane {
    std::vector<int> instructions;  // in issue order
    std::vector<std::array<int, schedule::kNumLanes>>
        waits;  // per instruction: how many of each lane must have completed
    int completed = 0;
  };
  using Lanes = std::array<Lane, schedule::kNumLanes>;
  static Lanes lanes_of(const schedule::Program& program);
  Lanes& lanes() { return programs_[static_cast<std::size_t>(program_)]; }
  void run_lane(Lane& lane);
  void run_instruction(int index);
  void lane_thread(int lane);
  bool wait_for(const std::array<int, schedule::kNumLanes>& counts);  // false: some lane failed
  void fail();

  Run run_;
  std::function<void()> on_failure_;
  std::vector<Lanes> programs_;
  int program_ = 0;  // the one at work
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  int generation_ = 0;
  int running_ = 0;  // lanes with a thread that have not drained
  bool stop_ = false;
  std::span<schedule::Span> record_;
  std::chrono::steady_clock::time_point start_;  // of the pass that is recorded
  std::vector<std::thread> threads_;
};

}  // namespace trireme::engine
