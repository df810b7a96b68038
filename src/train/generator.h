// Text from a trained model: loads weights from a checkpoint and samples one token after the other.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chain/chain.h"
#include "data/tokenizer.h"
#include "engine/memory.h"

namespace trireme::train {

struct SamplingOptions {
  std::int64_t max_tokens = 200;
  double temperature = 1.0;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: off
  double top_p = 1.0;        // smallest set of likeliest tokens with at least this probability
  std::uint64_t seed = 0;
};

// The next token from its logits; u in (0, 1). Ties go to the lower id.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double u);

class Generator {
 public:
  // where: a run's output_dir (its newest checkpoint), its checkpoints folder, or one step's folder. The tokenizer is
  // the one that the run kept beside it. Computes in fp32. Throws Error TR50xx when there is no valid checkpoint.
  explicit Generator(const std::filesystem::path& where);
  ~Generator();

  // Continues the prompt; ends early at an end-of-document mark. Calls on_text with whole characters as they come. An
  // empty prompt begins a document. Contexts longer than the model's positions slide.
  std::string generate(std::string_view prompt, const SamplingOptions& options,
                       const std::function<void(std::string_view)>& on_text = {});

  std::int64_t step() const { return step_; }

 private:
  std::vector<float> next_logits(const std::vector<std::int32_t>& ids);

  std::unique_ptr<data::Tokenizer> tokenizer_;
  Chain chain_;
  std::int64_t step_ = 0;
  std::vector<engine::Memory> parameters_;
  std::vector<std::vector<Tensor>> unit_parameters_;
  engine::Memory arena_;
};

}  // namespace trireme::train
