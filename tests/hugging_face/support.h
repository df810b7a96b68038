// transformers as the oracle, and models of ours that are only run forward.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "train/text_model.h"

namespace trireme::testing {

constexpr const char* kNoTransformers =
    "no Python package transformers here: `scripts/setup.sh --tests` unpacks it where the system's Python is 3.11";

bool has_transformers();

// Runs oracle.py, or another script of this folder; what it printed. Fails the test when it fails.
std::string run_script(const std::string& script, const std::vector<std::string>& arguments);
inline std::string ask_oracle(const std::vector<std::string>& arguments) {
  return run_script("oracle.py", arguments);
}

// SmolLM2-135M-Instruct, converted once for the build folder.
const std::filesystem::path& smollm2();

// A model of each family with random weights, and ids.i32, logits.f32; made once for the process.
const std::filesystem::path& families();
std::vector<std::string> family_names();

template <class T>
std::vector<T> read_values(const std::filesystem::path& file);
template <class T>
void write_values(const std::filesystem::path& file, const std::vector<T>& values);

// The weights of a folder in a chain that computes in fp32.
class ForwardModel {
 public:
  explicit ForwardModel(const std::filesystem::path& folder);
  // Of the last position of each of the passages.
  std::vector<float> last_logits(const std::vector<std::int32_t>& ids, std::int64_t length) const;
  // The rows of a logical tensor, to be changed.
  struct Rows {
    float* data;
    std::int64_t rows, columns, stride;
  };
  Rows rows(const std::string& name) const;

 private:
  train::ForwardModel model_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace trireme::testing
