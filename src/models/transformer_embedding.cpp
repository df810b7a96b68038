#include <algorithm>

#include "base/random.h"
#include "kernels/device.h"
#include "layers/embedding.h"
#include "layout/dispatch.h"
#include "models/transformer.h"

namespace trireme {
namespace {

std::string place_of(const Batch& batch, std::int64_t n) {
  return "batch row " + std::to_string(n / batch.shape.sequence) + ", position " +
         std::to_string(n % batch.shape.sequence);
}

void scale(double factor, const Tensor& x) {
  if (factor == 1) return;
  dispatch(x.dtype, [&]<class T>(T) { kernels::table<T>().scale(x.numel(), factor, x.as<T>()); });
}

}  // namespace

void TransformerEmbedding::check(const Batch& batch) const {
  for (std::int64_t n = 0; n < batch.shape.tokens(); ++n) {
    if (batch.ids[n] < 0 || batch.ids[n] >= facts_.vocabulary) {
      throw Error(
          1202, place_of(batch, n),
          "token id " + std::to_string(batch.ids[n]) + " is outside 0 .. " + std::to_string(facts_.vocabulary - 1),
          "the data must be tokenized with the model's own tokenizer");
    }
    if (batch.positions[n] < 0 || batch.positions[n] >= facts_.max_positions) {
      throw Error(1203, place_of(batch, n),
                  "position " + std::to_string(batch.positions[n]) + " is outside 0 .. " +
                      std::to_string(facts_.max_positions - 1),
                  "shorten the sequences or raise the model's maximum of positions");
    }
    if (batch.starts[n] < 0 || batch.starts[n] > place_in_sequence(batch, n)) {
      throw Error(1204, place_of(batch, n),
                  "document start " + std::to_string(batch.starts[n]) + " is not at or before the position");
    }
  }
}

TransformerEmbedding::TransformerEmbedding(const TransformerFacts& facts, std::string name, std::vector<int> parameters)
    : TransformerUnit(facts, std::move(name), std::move(parameters)),
      dropout_stream_(stream_id(this->name() + "/dropout")) {}

TransformerEmbedding::Workspace TransformerEmbedding::place_workspace(MemoryLayout& memory, Phase phase,
                                                                      const BatchShape& shape) const {
  const std::int64_t N = shape.tokens(), C = facts_.C;
  Workspace w;
  if (phase == Phase::forward) {
    if (has_positions()) w.positions = memory.place(facts_.dtype, {N, C});
    return w;
  }
  if (facts_.embedding_dropout > 0 || facts_.embedding_scale != 1) w.gradient = memory.place(facts_.dtype, {N, C});
  const std::int64_t rows =
      has_positions() ? std::max(facts_.padded_vocabulary, facts_.max_positions) : facts_.padded_vocabulary;
  w.sort = memory.place(DType::u8, {embedding_workspace_bytes(N, rows, C)});
  return w;
}

UnitCost TransformerEmbedding::describe(Phase phase, const BatchShape& shape) const {
  const double output = static_cast<double>(boundary_bytes(this->output(shape)));
  MemoryLayout memory;
  place_workspace(memory, phase, shape);
  UnitCost cost;
  cost.reads_input = false;
  cost.workspace_bytes = memory.size();
  cost.bytes_moved = 2 * output;
  if (phase == Phase::backward) {
    const std::int64_t rows = facts_.padded_vocabulary + (has_positions() ? facts_.max_positions : 0);
    cost.bytes_moved = output + static_cast<double>(rows * facts_.C * size_of(facts_.dtype));
  }
  return cost;
}

void TransformerEmbedding::forward(const ForwardArguments& arguments) const {
  const Batch& batch = arguments.batch;
  MemoryLayout scratch(arguments.workspace);
  const Workspace w = place_workspace(scratch, Phase::forward, batch.shape);
  const Tensor y = as_matrix(arguments.output[0], batch.shape.tokens(), facts_.C);
  embedding_forward(batch.ids, arguments.parameters[0], y);
  scale(facts_.embedding_scale, y);
  if (has_positions()) {
    embedding_forward(batch.positions, arguments.parameters[1], w.positions);
    dispatch(y.dtype,
             [&]<class T>(T) { kernels::table<T>().add(y.numel(), y.as<T>(), w.positions.as<T>(), y.as<T>()); });
  }
  const kernels::Dropout dropout = dropout_of(batch, facts_.embedding_dropout, dropout_stream_);
  if (is_active(dropout)) apply_dropout(dropout, batch.shape, y, y);
}

void TransformerEmbedding::backward(const BackwardArguments& arguments) const {
  const Batch& batch = arguments.batch;
  MemoryLayout scratch(arguments.workspace);
  const Workspace w = place_workspace(scratch, Phase::backward, batch.shape);
  Tensor dy = as_matrix(arguments.grad_output[0], batch.shape.tokens(), facts_.C);
  const kernels::Dropout dropout = dropout_of(batch, facts_.embedding_dropout, dropout_stream_);
  if (is_active(dropout)) {
    apply_dropout(dropout, batch.shape, dy, w.gradient);
    dy = w.gradient;
  }
  if (has_positions()) embedding_backward(batch.positions, dy, arguments.gradients[1], w.sort);
  if (facts_.embedding_scale != 1) {
    TRIREME_CHECK(w.gradient.data != nullptr, "the embedding scales in memory that it did not place");
    if (dy.data != w.gradient.data) kernels::copy(w.gradient.data, dy.data, dy.bytes());
    dy = w.gradient;
    scale(facts_.embedding_scale, dy);
  }
  embedding_backward(batch.ids, dy, arguments.gradients[0], w.sort);
}

}  // namespace trireme
