// Models of every family compute what the Python package transformers computes: logits, loss, all gradients, and a
// greedy continuation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "checkpoint/model_folder.h"
#include "families/chain_run.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

template <class T>
std::vector<T> values_of(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const std::span<const std::byte> data = file.tensors().at(name).data;
  std::vector<T> values(data.size() / sizeof(T));
  std::memcpy(values.data(), data.data(), data.size());
  return values;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// The elements of a logical tensor, out of its storage matrix.
std::vector<float> elements_of(const LogicalTensor& tensor, const float* storage, std::int64_t columns) {
  std::vector<float> values;
  for (std::int64_t row = tensor.box.row_begin; row < tensor.box.row_end; ++row) {
    const float* begin = storage + row * columns;
    values.insert(values.end(), begin + tensor.box.column_begin, begin + tensor.box.column_end);
  }
  return values;
}

class Family {
 public:
  explicit Family(const fs::path& folder)
      : chain_(make_chain(checkpoint::read_model_config(folder).model, DType::f32)),
        run_(chain_),
        expected_(folder / "expected.safetensors") {
    const checkpoint::ModelWeights weights(folder, chain_.parameters);
    for (std::size_t p = 0; p < chain_.parameters.size(); ++p) {
      const ParameterSpec& spec = chain_.parameters[p];
      for (const LogicalTensor& tensor : spec.logical) {
        float* out = run_.parameter(p) + tensor.box.row_begin * spec.columns + tensor.box.column_begin;
        weights.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, out, spec.columns);
      }
    }
  }

  void expect_the_same() {
    const auto ids = values_of<std::int32_t>(expected_, "ids");
    const auto T = static_cast<std::int64_t>(ids.size()) / 2;
    const Micro micro(ids, {2, T});
    EXPECT_LE(relative_difference(run_.logits(micro), values_of<float>(expected_, "logits")), 1e-5) << "logits";
    const double loss = values_of<float>(expected_, "loss")[0];
    EXPECT_NEAR(run_.train(micro), loss, 1e-6 * loss);
    std::size_t gradients = 0;
    for (std::size_t p = 0; p < chain_.parameters.size(); ++p) {
      const ParameterSpec& spec = chain_.parameters[p];
      for (const LogicalTensor& tensor : spec.logical) {
        const auto ours = elements_of(tensor, run_.gradient(p), spec.columns);
        EXPECT_LE(relative_difference(ours, values_of<float>(expected_, "grad/" + tensor.name)), 1e-5) << tensor.name;
        ++gradients;
      }
    }
    EXPECT_EQ(gradients + 4, expected_.tensors().size()) << "some gradients were not compared";
    expect_same_continuation();
    expect_the_same_with_a_cache(ids, values_of<float>(expected_, "logits"));
  }

 private:
  // From position 36 on, beyond every limit of a RoPE scaling, and with windows that reach into the cache.
  void expect_the_same_with_a_cache(const std::vector<std::int32_t>& ids, std::vector<float> expected) {
    const std::vector<float> logits = run_.cached_logits(ids, 48, 9);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] == 0) expected[i] = 0;
    }
    constexpr std::int64_t kSkipped = 47 + 35 + 2 + 9;  // of the parts all but the last position, and row 1's end
    EXPECT_EQ(std::count(logits.begin(), logits.end(), 0.0F), chain_.vocabulary * kSkipped);
    EXPECT_LE(relative_difference(logits, expected), 1e-5) << "logits with a cache of keys and values";
  }

  void expect_same_continuation() {
    constexpr std::size_t kPrompt = 9;
    const auto expected = values_of<std::int32_t>(expected_, "greedy");
    std::vector<std::int32_t> ids(expected.begin(), expected.begin() + kPrompt);
    while (ids.size() < expected.size()) {
      const auto T = static_cast<std::int64_t>(ids.size());
      const std::vector<float> logits = run_.logits(Micro(ids, {1, T}));
      const auto last = logits.end() - chain_.vocabulary;
      ids.push_back(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last));
    }
    EXPECT_EQ(ids, expected) << "greedy continuation";
  }

  Chain chain_;
  ChainRun run_;
  checkpoint::SafetensorsFile expected_;
};

// One test for all: making the models takes most of its time.
TEST(Families, ComputeWhatTransformersComputes) {
  if (!oracle_has("transformers/__init__.py"))
    GTEST_SKIP() << "no Python package transformers in .deps/oracle (scripts/setup.sh --tests)";
  const TemporaryFolder folder;
  const ProcessResult made =
      run({kOraclePython, TRIREME_SOURCE_DIR "/tests/families/families.py", folder.path().string()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  int families = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    SCOPED_TRACE(entry.path().filename().string());
    Family(entry.path()).expect_the_same();
    ++families;
  }
  EXPECT_EQ(families, 14);
}

}  // namespace
}  // namespace trireme::testing
