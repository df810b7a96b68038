#include <algorithm>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "layout/dispatch.h"
#include "models/transformer.h"

namespace trireme {

void TransformerHead::check(const Batch& batch) const {
  if (batch.labels == nullptr) return;
  const std::int64_t vocabulary = facts_.vocabulary;
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

LossHeadShape TransformerHead::loss_shape(const BatchShape& shape) const {
  return {.N = shape.tokens(),
          .C = facts_.C,
          .vocabulary = facts_.vocabulary,
          .rows = facts_.padded_vocabulary,
          .chunk_rows = facts_.loss_chunk_tokens,
          .soft_cap = facts_.logit_soft_cap,
          .float_gradient = facts_.float_gradients};
}

TransformerHead::LossWorkspace TransformerHead::place_loss(MemoryLayout& memory, const BatchShape& shape) const {
  LossWorkspace w;
  w.normed = memory.place(facts_.dtype, {shape.tokens(), facts_.C});
  w.norm = place_norm_statistics(memory, facts_.norm, shape.tokens(), facts_.dtype);
  w.head = place_loss_head(memory, loss_shape(shape), facts_.dtype);
  return w;
}

TransformerHead::LogitsWorkspace TransformerHead::place_logits(MemoryLayout& memory, std::int64_t rows) const {
  LogitsWorkspace w;
  w.rows = memory.place(facts_.dtype, {rows, facts_.C});
  w.normed = memory.place(facts_.dtype, {rows, facts_.C});
  w.norm = place_norm_statistics(memory, facts_.norm, rows, facts_.dtype);
  w.logits = memory.place(accumulator_of(facts_.dtype), {rows, facts_.vocabulary});
  return w;
}

UnitCost TransformerHead::describe(Phase phase, const BatchShape& shape) const {
  const bool is_loss = phase == Phase::backward;
  MemoryLayout memory;
  if (is_loss) {
    place_loss(memory, shape);
  } else {
    place_logits(memory, shape.batch);
  }
  const double weights = static_cast<double>(facts_.padded_vocabulary * facts_.C);
  const double rows = static_cast<double>(is_loss ? shape.tokens() : shape.batch);
  UnitCost cost;
  cost.workspace_bytes = memory.size();
  cost.smallest_side = std::min({shape.tokens(), facts_.loss_chunk_tokens, facts_.C, facts_.padded_vocabulary});
  cost.library_bytes = loss_head_scratch_bytes(loss_shape(shape), facts_.dtype, facts_.threads);
  cost.flops = (is_loss ? 6 : 2) * rows * weights;
  cost.bytes_moved = (is_loss ? 3 : 1) * (weights + rows * static_cast<double>(facts_.padded_vocabulary)) *
                     static_cast<double>(size_of(facts_.dtype));
  return cost;
}

std::vector<kernels::Product> TransformerHead::products(const BatchShape& shape) const {
  return loss_head_products(loss_shape(shape), facts_.dtype);
}

void TransformerHead::loss(const LossArguments& arguments) const {
  const Batch& batch = arguments.batch;
  const LossHeadShape shape = loss_shape(batch.shape);
  MemoryLayout scratch(arguments.workspace);
  const LossWorkspace w = place_loss(scratch, batch.shape);
  const auto& p = arguments.parameters;
  const Tensor x = as_matrix(arguments.input[0], shape.N, shape.C);
  const NormWeights norm = norm_weights(p, norm_);
  norm_forward(facts_.norm, x, norm, w.normed, w.norm);
  if (arguments.gradients.empty()) {
    return loss_head_forward(shape, w.normed, p[matrix_], batch.labels, arguments.sum, w.head);
  }
  const Tensor dx = as_matrix(arguments.grad_input[0], shape.N, shape.C);
  const Tensor& dnormed = dx;  // the norm's backward works in place
  loss_head_backward(shape, w.normed, p[matrix_], batch.labels, arguments.grad_scale, dnormed,
                     arguments.gradients[matrix_], arguments.sum, w.head);
  norm_backward(facts_.norm, x, norm, w.norm, dnormed, {}, dx, norm_gradients(arguments.gradients, norm_));
}

void TransformerHead::logits(const ForwardArguments& arguments, std::span<const std::int64_t> positions,
                             float* out) const {
  const BatchShape& shape = arguments.batch.shape;
  const std::int64_t B = shape.batch, C = facts_.C, V = facts_.vocabulary;
  TRIREME_CHECK(std::ssize(positions) == B, "logits: one position a row of the batch");
  MemoryLayout scratch(arguments.workspace);
  const LogitsWorkspace w = place_logits(scratch, B);
  const std::int64_t row_bytes = C * size_of(facts_.dtype);
  for (std::int64_t b = 0; b < B; ++b) {
    TRIREME_CHECK(positions[b] >= 0 && positions[b] < shape.sequence, "logits: a position is outside its row");
    kernels::copy(
        static_cast<std::byte*>(w.rows.data) + b * row_bytes,
        static_cast<const std::byte*>(arguments.input[0].data) + (b * shape.sequence + positions[b]) * row_bytes,
        row_bytes);
  }
  norm_forward(facts_.norm, w.rows, norm_weights(arguments.parameters, norm_), w.normed, w.norm);
  dispatch(facts_.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::gemm_unrounded(false, true, B, V, C, w.normed.as<T>(), C, arguments.parameters[matrix_].as<T>(), C,
                            w.logits.as<Acc>(), V, false);
    if (facts_.logit_soft_cap > 0) {
      kernels::table<Acc>().soft_cap(B, V, V, facts_.logit_soft_cap, w.logits.as<Acc>());
    }
    kernels::table<Acc>().cast_to_float(B * V, w.logits.as<Acc>(), out);
  });
}

}  // namespace trireme
