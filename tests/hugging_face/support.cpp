#include "hugging_face/support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/file.h"
#include "chain/forward.h"
#include "checkpoint/model_folder.h"
#include "models/model.h"
#include "support/oracle.h"
#include "support/process.h"
#include "support/temporary_folder.h"

namespace trireme::testing {

namespace fs = std::filesystem;

namespace {

const fs::path kSource = TRIREME_SOURCE_DIR;

}  // namespace

bool has_transformers() {
  return oracle_has("transformers") && oracle_has("torch");
}

std::string run_script(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{kOraclePython, kSource / "tests/hugging_face" / script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ProcessResult result = run(command, {{"OMP_WAIT_POLICY", "passive"}});
  EXPECT_EQ(result.exit_code, 0) << script << ": " << result.out << result.err;
  return result.out;
}

const fs::path& smollm2() {
  static const fs::path folder = [] {
    const fs::path output = fs::path(TRIREME_BUILD_DIR) / "smollm2-135m";
    if (!fs::exists(output)) run_script("smollm2.py", {output});
    return output;
  }();
  return folder;
}

const fs::path& families() {
  static const TemporaryFolder folder;
  static const bool made = [] {
    ask_oracle({"families", folder.path()});
    return true;
  }();
  EXPECT_TRUE(made);
  return folder.path();
}

std::vector<std::string> family_names() {
  return {"llama", "llama_scaled", "llama_biases", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2"};
}

template <class T>
std::vector<T> read_values(const fs::path& file) {
  const std::string bytes = read_file(file);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}
template std::vector<float> read_values(const fs::path&);
template std::vector<std::int32_t> read_values(const fs::path&);

template <class T>
void write_values(const fs::path& file, const std::vector<T>& values) {
  write_file_atomic(file, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}
template void write_values(const fs::path&, const std::vector<std::int32_t>&);

ForwardModel::ForwardModel(const fs::path& folder) {
  Chain chain = make_chain(checkpoint::read_model_config(folder).model, DType::f32);
  const checkpoint::ModelWeights weights(folder, chain.parameters);
  model_ =
      train::load_forward_model(std::move(chain), [&](const LogicalTensor& tensor, float* data, std::int64_t stride) {
        weights.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, data, stride);
      });
}

ForwardModel::Rows ForwardModel::rows(const std::string& name) const {
  for (std::size_t i = 0; i < model_.chain.parameters.size(); ++i) {
    const ParameterSpec& spec = model_.chain.parameters[i];
    for (const LogicalTensor& tensor : spec.logical) {
      if (tensor.name != name) continue;
      auto* data = reinterpret_cast<float*>(model_.storage[i].at(0));
      return {data + tensor.box.row_begin * spec.columns + tensor.box.column_begin, tensor.box.rows(),
              tensor.box.columns(), spec.columns};
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

std::vector<float> ForwardModel::last_logits(const std::vector<std::int32_t>& ids, std::int64_t length) const {
  const std::int64_t passages = std::ssize(ids) / length;
  const BatchShape shape{passages, length};
  std::vector<std::int32_t> positions(ids.size()), starts(ids.size(), 0), labels(ids.size(), -1);
  for (std::size_t i = 0; i < ids.size(); ++i)
    positions[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % length);
  const Batch batch{shape, ids.data(), labels.data(), positions.data(), starts.data()};
  const engine::Memory arena(forward_bytes(model_.chain, shape));
  const HeadInput head = forward_to_head(model_.chain, batch, model_.parameters, arena.at(0));
  std::vector<std::int64_t> last(static_cast<std::size_t>(passages), length - 1);
  std::vector<float> logits(static_cast<std::size_t>(passages * model_.chain.vocabulary));
  model_.chain.units.back()->logits({batch, model_.parameters.back(), head.boundary, {}, nullptr, head.workspace}, last,
                                    logits.data());
  return logits;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= largest)) largest = difference;  // also where it is no number
  }
  return largest;
}

}  // namespace trireme::testing
