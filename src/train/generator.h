// Text from a trained model: continues prompts, one token after the other.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/text_model.h"

namespace trireme::train {

struct SamplingOptions {
  std::int64_t max_tokens = 200;  // to write, of a prompt
  double temperature = 1.0;       // 0: always the likeliest token
  std::int64_t top_k = 0;         // 0: off
  double top_p = 1.0;             // smallest set of likeliest tokens with at least this probability
  std::uint64_t seed = 0;
};

// The next token from its logits; u in (0, 1). Ties go to the lower id.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double u);

// Keys and values of earlier tokens are kept, so a further token costs one pass over the weights, shared by the prompts
// that are continued together.
class Generator {
 public:
  // As load_text_model(). The model runs where its weights are: on the CPU, or on the calling thread's device. Tokens
  // are drawn on the host.
  explicit Generator(const std::string& where, engine::MemoryKind memory = engine::MemoryKind::host);
  explicit Generator(TextModel text) : text_(std::move(text)) {}

  // Of prompts[prompt]: its next characters; ended with the last ones (which may be none).
  using OnText = std::function<void(std::size_t prompt, std::string_view piece, bool ended)>;

  // Continues each prompt up to a token that ends a text, at most `together` of them at a time. A prompt's draws depend
  // on the seed and its place in the list alone. A context that outgrows the model's positions goes on with its newer
  // half. Error TR2270: an empty prompt, where the tokenizer has nothing that begins a text.
  void generate(std::span<const std::string> prompts, const SamplingOptions& options, std::int64_t together,
                const OnText& on_text) const;
  // Of one prompt, the whole text.
  std::string generate(const std::string& prompt, const SamplingOptions& options) const;

  const TextModel& text_model() const { return text_; }

 private:
  class Run;
  TextModel text_;
};

}  // namespace trireme::train
