#include "train/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "chain/forward.h"
#include "checkpoint/checkpoint.h"
#include "data/tokenizer_stream.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "train/model_source.h"

namespace trireme::train {

namespace fs = std::filesystem;

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double u) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return order.front();
  std::size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  std::vector<double> weights(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / options.temperature);
  }
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    if (sum >= options.top_p * all) {
      kept = i + 1;
      break;
    }
  }
  const double target = u * std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  double reached = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    reached += weights[i];
    if (reached >= target) return order[i];
  }
  return order[kept - 1];
}

Generator::Generator(const fs::path& where) {
  const FoundCheckpoint found = find_checkpoint(where);
  const checkpoint::Reader reader(found.folder);
  const checkpoint::Manifest& manifest = reader.manifest();
  step_ = manifest.step;
  tokenizer_ = data::load_tokenizer((found.run / "tokenizer").string());
  if (tokenizer_->digest() != manifest.tokenizer_digest) {
    throw Error(5053, (found.run / "tokenizer").string(), "is not the tokenizer that the checkpoint was trained with",
                "restore the run's own tokenizer folder");
  }
  chain_ = make_chain(model_of_checkpoint(found, manifest, tokenizer_->vocabulary()), DType::f32);

  std::vector<Tensor> views;
  for (const ParameterSpec& spec : chain_.parameters) {
    const engine::Memory& memory = parameters_.emplace_back(spec.numel() * 4);
    views.emplace_back(memory.at(0), DType::f32, std::initializer_list<std::int64_t>{spec.rows, spec.columns});
    for (const LogicalTensor& tensor : spec.logical) {
      float* data = views.back().as<float>() + tensor.box.row_begin * spec.columns + tensor.box.column_begin;
      reader.read(tensor.name, tensor.shape, 0, tensor.box.rows(), 0, tensor.box.columns(), data, spec.columns);
    }
  }
  for (const auto& unit : chain_.units) {
    auto& own = unit_parameters_.emplace_back();
    for (const int parameter : unit->parameters()) own.push_back(views[static_cast<std::size_t>(parameter)]);
  }
  arena_ = engine::Memory(forward_bytes(chain_, {1, chain_.max_positions}));
}

Generator::~Generator() = default;

std::vector<float> Generator::next_logits(const std::vector<std::int32_t>& ids) {
  const auto length = std::min(static_cast<std::int64_t>(ids.size()), chain_.max_positions);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(length)), starts(positions.size(), 0),
      labels(positions.size(), -1);
  std::iota(positions.begin(), positions.end(), 0);
  const Batch batch{{1, length},
                    ids.data() + (static_cast<std::int64_t>(ids.size()) - length),
                    labels.data(),
                    positions.data(),
                    starts.data()};
  const HeadInput head = forward_to_head(chain_, batch, unit_parameters_, arena_.at(0));
  std::vector<float> logits(static_cast<std::size_t>(chain_.vocabulary));
  const std::int64_t last = length - 1;
  const ForwardArguments arguments{batch, unit_parameters_.back(), head.boundary, {}, nullptr, head.workspace};
  chain_.units.back()->logits(arguments, std::span(&last, 1), logits.data());
  return logits;
}

std::string Generator::generate(std::string_view prompt, const SamplingOptions& options,
                                const std::function<void(std::string_view)>& on_text) {
  std::vector<std::int32_t> ids{tokenizer_->end_of_document()};
  const std::vector<std::int32_t> given = tokenizer_->encode(prompt);
  ids.insert(ids.end(), given.begin(), given.end());
  data::TextStream stream(*tokenizer_);
  stream.pass_over(given);
  std::string text;
  const auto take = [&](const std::string& piece) {
    text += piece;
    if (on_text && !piece.empty()) on_text(piece);
  };
  const std::uint64_t draws = stream_id("generate");
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const std::vector<float> logits = next_logits(ids);
    const auto known = std::span(logits).first(static_cast<std::size_t>(tokenizer_->vocabulary()));
    const std::int32_t next =
        sample_token(known, options, random_uniform(options.seed, draws, static_cast<std::uint64_t>(i)));
    if (next == tokenizer_->end_of_document()) break;
    ids.push_back(next);
    take(stream.push(next));
  }
  take(stream.finish());
  return text;
}

}  // namespace trireme::train
