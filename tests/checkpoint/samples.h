// A small run's state, and what the tests of checkpoints share.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace trireme::checkpoint::testing {

// Tensors with values that depend on the step, so that one checkpoint is not another: a matrix, a vector, a scalar, an
// empty one, and one beyond a block of digests.
class State {
 public:
  explicit State(std::int64_t step, std::int64_t big_rows = 300);
  const std::vector<NamedData>& tensors() const { return tensors_; }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, std::int64_t step);
  std::vector<std::vector<float>> values_;
  std::vector<NamedData> tensors_;
};

Manifest sample_manifest(int attempt, std::int64_t step);

// Saves State(step) under that attempt.
std::filesystem::path save_step(const std::filesystem::path& checkpoints, int attempt, std::int64_t step);

// Whether the checkpoint there holds exactly State(step); fails the test with the difference if not.
void expect_state(const std::filesystem::path& folder, std::int64_t step);

// All checkpoints that the folder lists, by step.
std::vector<std::int64_t> listed_steps(const std::filesystem::path& checkpoints);

void flip_bit(const std::filesystem::path& file, std::uint64_t bit);

// All names below a folder, sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint::testing
