#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"
#include "layers/dispatch.h"
#include "layers/norm.h"
#include "models/llama_units.h"

namespace trireme {
namespace {

// The order of LlamaHead's parameters.
enum : std::size_t { kNorm, kMatrix };

void check_labels(const Batch& batch, std::int64_t vocabulary) {
  const std::int32_t* end = batch.labels + batch.shape.tokens();
  const std::int32_t* wrong = std::find_if(batch.labels, end, [=](std::int32_t label) { return label >= vocabulary; });
  if (wrong != end) {
    const std::int64_t n = wrong - batch.labels;
    throw Error(1205,
                "batch row " + std::to_string(n / batch.shape.sequence) + ", position " +
                    std::to_string(n % batch.shape.sequence),
                "label " + std::to_string(*wrong) + " is not below the vocabulary's " + std::to_string(vocabulary),
                "the data must be tokenized with the model's own tokenizer");
  }
}

}  // namespace

LossHeadShape LlamaHead::loss_shape(const BatchShape& shape) const {
  const LlamaConfig& c = facts_.config;
  return {shape.tokens(), c.hidden_size, c.vocabulary, facts_.padded_vocabulary, c.loss_chunk_tokens};
}

LlamaHead::LossWorkspace LlamaHead::place_loss(MemoryLayout& memory, const BatchShape& shape) const {
  LossWorkspace w;
  w.normed = memory.place(facts_.dtype, {shape.tokens(), facts_.config.hidden_size});
  w.rstd = memory.place(accumulator_of(facts_.dtype), {shape.tokens()});
  w.head = place_loss_head(memory, loss_shape(shape), facts_.dtype);
  return w;
}

LlamaHead::LogitsWorkspace LlamaHead::place_logits(MemoryLayout& memory, std::int64_t rows) const {
  LogitsWorkspace w;
  w.rows = memory.place(facts_.dtype, {rows, facts_.config.hidden_size});
  w.normed = memory.place(facts_.dtype, {rows, facts_.config.hidden_size});
  w.rstd = memory.place(accumulator_of(facts_.dtype), {rows});
  w.logits = memory.place(accumulator_of(facts_.dtype), {rows, facts_.config.vocabulary});
  return w;
}

UnitCost LlamaHead::describe(Phase phase, const BatchShape& shape) const {
  const bool is_loss = phase == Phase::backward;
  MemoryLayout memory;
  if (is_loss) {
    place_loss(memory, shape);
  } else {
    place_logits(memory, shape.batch);
  }
  const double weights = static_cast<double>(facts_.padded_vocabulary * facts_.config.hidden_size);
  const double rows = static_cast<double>(is_loss ? shape.tokens() : shape.batch);
  UnitCost cost;
  cost.workspace_bytes = memory.size();
  cost.flops = (is_loss ? 6 : 2) * rows * weights;
  cost.bytes_moved = (is_loss ? 3 : 1) * (weights + rows * static_cast<double>(facts_.padded_vocabulary)) *
                     static_cast<double>(size_of(facts_.dtype));
  return cost;
}

LossResult LlamaHead::loss(const LossArguments& arguments) const {
  const Batch& batch = arguments.batch;
  const LossHeadShape shape = loss_shape(batch.shape);
  check_labels(batch, shape.vocabulary);
  MemoryLayout scratch(arguments.workspace);
  const LossWorkspace w = place_loss(scratch, batch.shape);
  const auto& p = arguments.parameters;
  const Tensor x = as_matrix(arguments.input[0], shape.N, shape.C);
  rmsnorm_forward(x, p[kNorm], facts_.config.rms_norm_eps, w.normed, w.rstd);
  if (arguments.gradients.empty()) return loss_head_forward(shape, w.normed, p[kMatrix], batch.labels, w.head);
  const Tensor dx = as_matrix(arguments.grad_input[0], shape.N, shape.C);
  const Tensor& dnormed = dx;  // the norm's backward works in place
  const LossResult result = loss_head_backward(shape, w.normed, p[kMatrix], batch.labels, arguments.grad_scale, dnormed,
                                               arguments.gradients[kMatrix], w.head);
  rmsnorm_backward(x, p[kNorm], w.rstd, dnormed, dx, false, arguments.gradients[kNorm]);
  return result;
}

void LlamaHead::logits(const ForwardArguments& arguments, std::span<const std::int64_t> positions, float* out) const {
  const BatchShape& shape = arguments.batch.shape;
  const std::int64_t B = shape.batch, C = facts_.config.hidden_size, V = facts_.config.vocabulary;
  TRIREME_CHECK(std::ssize(positions) == B, "logits: one position a row of the batch");
  MemoryLayout scratch(arguments.workspace);
  const LogitsWorkspace w = place_logits(scratch, B);
  const auto row_bytes = static_cast<std::size_t>(C * size_of(facts_.dtype));
  for (std::int64_t b = 0; b < B; ++b) {
    TRIREME_CHECK(positions[b] >= 0 && positions[b] < shape.sequence, "logits: a position is outside its row");
    std::memcpy(
        static_cast<std::byte*>(w.rows.data) + b * row_bytes,
        static_cast<const std::byte*>(arguments.input[0].data) + (b * shape.sequence + positions[b]) * row_bytes,
        row_bytes);
  }
  rmsnorm_forward(w.rows, arguments.parameters[kNorm], facts_.config.rms_norm_eps, w.normed, w.rstd);
  dispatch(facts_.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::gemm_unrounded(false, true, B, V, C, w.normed.as<T>(), C, arguments.parameters[kMatrix].as<T>(), C,
                            w.logits.as<Acc>(), V, false);
    kernels::table<Acc>().cast_to_float(B * V, w.logits.as<Acc>(), out);
  });
}

}  // namespace trireme
