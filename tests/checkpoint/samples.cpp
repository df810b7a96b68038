#include "checkpoint/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/random.h"

namespace trireme::checkpoint::testing {
namespace fs = std::filesystem;

State::State(std::int64_t step, std::int64_t big_rows) {
  values_.reserve(8);  // tensors_ points into it
  add("model.embed_tokens.weight", {7, 5}, step);
  add("model.norm.weight", {13}, step);
  add("exp_avg/model.norm.weight", {13}, step);
  add("scale", {}, step);
  add("empty", {0, 4}, step);
  add("lm_head.weight", {big_rows, 1000}, step);
  add("conv.weight", {3, 2, 4}, step);
}

void State::add(const std::string& name, std::vector<std::int64_t> shape, std::int64_t step) {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) numel *= size;
  std::vector<float>& values = values_.emplace_back();
  for (std::int64_t i = 0; i < numel; ++i) {
    values.push_back(static_cast<float>(
        random_u64(static_cast<std::uint64_t>(step), stream_id(name), static_cast<std::uint64_t>(i)) >> 40));
  }
  tensors_.push_back({name, DType::f32, std::move(shape), std::as_bytes(std::span(values))});
}

Manifest sample_manifest(int attempt, std::int64_t step) {
  Manifest manifest;
  manifest.run_id = "run \"7\" \xc3\xa9";
  manifest.attempt = attempt;
  manifest.step = step;
  manifest.plan_digest = "0123";
  manifest.plan_yaml = "training:\n  seed: 1\n";
  manifest.data_digest = "45";
  manifest.tokenizer_digest = "67";
  manifest.data_position = 0xffffffffffffffffull;
  manifest.num_micro_batches = 6;
  manifest.micro_batch_size = 2;
  manifest.compute_threads = 1;
  manifest.kernel_level = "avx2";
  manifest.world_size = 2;
  manifest.loss_scale = 0.1;
  manifest.loss_scale_good_steps = 17;
  manifest.loss_scale_hysteresis = 2;
  manifest.good_steps = step / 2;
  return manifest;
}

fs::path save_step(const fs::path& checkpoints, int attempt, std::int64_t step) {
  const State state(step);
  return save(checkpoints, sample_manifest(attempt, step), state.tensors());
}

void expect_state(const fs::path& folder, std::int64_t step) {
  const Reader reader(folder);
  EXPECT_EQ(reader.manifest().step, step);
  const State expected(step);
  EXPECT_EQ(reader.manifest().tensors.size(), expected.tensors().size());
  for (const NamedData& tensor : expected.tensors()) {
    const std::int64_t numel = static_cast<std::int64_t>(tensor.data.size() / sizeof(float));
    const std::int64_t rows = tensor.shape.size() < 2 ? 1 : tensor.shape[0];
    const std::int64_t columns = rows == 0 ? 4 : numel / rows;
    std::vector<float> values(static_cast<std::size_t>(numel), -1);
    reader.read(tensor.name, tensor.shape, 0, rows, 0, columns, values.data(), columns);
    const auto read = std::as_bytes(std::span(values));
    EXPECT_TRUE(std::equal(read.begin(), read.end(), tensor.data.begin(), tensor.data.end())) << tensor.name;
  }
}

std::vector<std::int64_t> listed_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const Candidate& candidate : list(checkpoints)) steps.push_back(candidate.step);
  return steps;
}

void flip_bit(const fs::path& file, std::uint64_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(bit / 8));
  const auto byte = static_cast<char>(stream.get() ^ (1 << (bit % 8)));
  stream.seekp(static_cast<std::streamoff>(bit / 8));
  stream.put(byte);
  ASSERT_TRUE(stream.good());
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    names.push_back(fs::relative(entry.path(), folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme::checkpoint::testing
