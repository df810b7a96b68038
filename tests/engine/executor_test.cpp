#include "engine/executor.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>

#include "base/error.h"

namespace trireme::engine {
namespace {

using schedule::Instruction;
using schedule::Lane;
using schedule::Program;

Instruction on(Lane lane, std::vector<int> waits = {}) {
  Instruction instruction;
  instruction.lane = lane;
  instruction.waits = std::move(waits);
  return instruction;
}

// A program whose waits are drawn at random among earlier instructions of the other lane.
Program random_program(std::mt19937& random, int size) {
  Program program;
  for (int i = 0; i < size; ++i) {
    const Lane lane = random() % 2 == 0 ? Lane::compute : Lane::reduce;
    Instruction instruction = on(lane);
    for (int other = 0; other < i; ++other) {
      if (program.instructions[other].lane != lane && random() % 4 == 0) instruction.waits.push_back(other);
    }
    program.instructions.push_back(instruction);
  }
  return program;
}

TEST(Executor, AnInstructionStartsAfterAllItsWaitsAndItsLaneInOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const Program program = random_program(random, 40);
    std::vector<std::atomic<int>> runs(program.instructions.size());
    std::atomic<int> too_early{0};
    Executor executor(
        {&program, 1},
        [&](int, int index) {
          const Instruction& instruction = program.instructions[index];
          for (const int other : instruction.waits) too_early += runs[other] <= runs[index];
          for (int other = 0; other < index; ++other) {
            if (program.instructions[other].lane == instruction.lane) too_early += runs[other] <= runs[index];
          }
          ++runs[index];
        },
        [] {});
    for (int pass = 0; pass < 5; ++pass) executor.run();
    EXPECT_EQ(too_early, 0);
    for (const auto& count : runs) EXPECT_EQ(count, 5);
  }
}

TEST(Executor, RecordsWhenEachInstructionRanOnlyWhenAsked) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Program program = random_program(random, 40);
  Executor executor(
      {&program, 1}, [](int, int) { std::this_thread::sleep_for(std::chrono::microseconds(50)); }, [] {});
  std::vector<schedule::Span> spans(program.instructions.size());
  executor.run(0, spans);
  const auto recorded = spans;
  executor.run();
  std::array<double, schedule::kNumLanes> free{};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    EXPECT_GE(spans[i].length(), 50e-6) << i;
    for (const int other : instruction.waits) EXPECT_GE(spans[i].start, spans[other].end) << i;
    EXPECT_GE(spans[i].start, free[static_cast<int>(instruction.lane)]) << i;
    free[static_cast<int>(instruction.lane)] = spans[i].end;
    EXPECT_EQ(spans[i].start, recorded[i].start) << "a pass that was not to be recorded was";
  }
}

TEST(Executor, RunsTheProgramThatWasAskedFor) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::array<Program, 2> programs{random_program(random, 30), random_program(random, 12)};
  std::atomic<int> runs[2] = {0, 0};
  Executor executor(
      programs, [&](int program, int) { ++runs[program]; }, [] {});
  for (const int program : {0, 1, 1, 0, 1}) executor.run(program);
  EXPECT_EQ(runs[0], 2 * 30);
  EXPECT_EQ(runs[1], 3 * 12);
}

TEST(Executor, LanesOverlap) {
  Program program;
  program.instructions = {on(Lane::reduce), on(Lane::compute)};
  std::atomic<bool> other_started{false};
  bool met = false;
  Executor executor(
      {&program, 1},
      [&](int, int index) {
        if (index == 1) {
          other_started = true;
          return;
        }
        // Ends only because the compute lane runs meanwhile.
        for (int i = 0; i < 5000 && !other_started; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        met = other_started;
      },
      [] {});
  executor.run();
  EXPECT_TRUE(met);
}

TEST(Executor, AFailureOfEitherLaneFreesTheOtherAndComesOut) {
  for (const int failing : {0, 1}) {
    Program program;
    program.instructions = {on(Lane::compute), on(Lane::reduce), on(Lane::compute, {1}), on(Lane::reduce, {0})};
    std::atomic<bool> freed{false};
    std::atomic<int> failures{0};
    Executor executor(
        {&program, 1},
        [&](int, int index) {
          if (index == failing) throw std::runtime_error("broken on purpose");
          if (index == 1 - failing) {
            while (!freed)
              std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a collective whose peer is gone
          }
        },
        [&] {
          ++failures;
          freed = true;
        });
    EXPECT_THROW(executor.run(), std::runtime_error);
    EXPECT_EQ(failures, 1);
    EXPECT_THROW(executor.run(), Error) << "a failed executor must not run again";
  }
}

}  // namespace
}  // namespace trireme::engine
