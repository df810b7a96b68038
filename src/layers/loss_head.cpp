#include "layers/loss_head.h"

#include <algorithm>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "layers/linear.h"
#include "layout/dispatch.h"

namespace trireme {
namespace {

Tensor rows_of(const Tensor& matrix, std::int64_t begin, std::int64_t count) {
  const std::int64_t columns = matrix.sizes[1];
  return Tensor(static_cast<std::byte*>(matrix.data) + begin * columns * size_of(matrix.dtype), matrix.dtype,
                {count, columns});
}

DType gradient_dtype(const LossHeadShape& shape, DType dtype) {
  return shape.float_gradient ? DType::f32 : dtype;
}

// Chunks' gradients of the weight, which are rounded once.
DType sum_dtype(const LossHeadShape& shape, DType dtype) {
  return shape.N > shape.chunk_rows ? accumulator_of(dtype) : gradient_dtype(shape, dtype);
}

bool has_own_sum(const LossHeadShape& shape, DType dtype) {
  return sum_dtype(shape, dtype) != gradient_dtype(shape, dtype);
}

void cap_logits(const LossHeadShape& shape, const Tensor& logits) {
  if (shape.soft_cap == 0) return;
  dispatch(logits.dtype, [&]<class T>(T) {
    kernels::table<T>().soft_cap(logits.sizes[0], shape.vocabulary, shape.rows, shape.soft_cap, logits.as<T>());
  });
}

// step(begin, count, logits): for each chunk of rows, with its logits computed.
template <class Step>
void for_each_chunk(const LossHeadShape& shape, const Tensor& hidden, const Tensor& weight, const Tensor& logits,
                    Step step) {
  for (std::int64_t begin = 0; begin < shape.N; begin += shape.chunk_rows) {
    const std::int64_t count = std::min(shape.chunk_rows, shape.N - begin);
    const Tensor chunk = rows_of(logits, 0, count);
    linear_forward(rows_of(hidden, begin, count), weight, chunk);
    cap_logits(shape, chunk);
    step(begin, count, chunk);
  }
}

}  // namespace

LossHeadWorkspace place_loss_head(MemoryLayout& memory, const LossHeadShape& shape, DType dtype) {
  LossHeadWorkspace workspace;
  workspace.logits = memory.place(dtype, {std::min(shape.N, shape.chunk_rows), shape.rows});
  if (has_own_sum(shape, dtype)) workspace.dweight = memory.place(sum_dtype(shape, dtype), {shape.rows, shape.C});
  return workspace;
}

std::int64_t loss_head_scratch_bytes(const LossHeadShape& shape, DType dtype, int threads) {
  const std::int64_t rows = std::min(shape.N, shape.chunk_rows);
  return linear_scratch_bytes(dtype, sum_dtype(shape, dtype), rows, shape.C, shape.rows, threads);
}

std::vector<kernels::Product> loss_head_products(const LossHeadShape& shape, DType dtype) {
  std::vector<kernels::Product> products;
  for (const std::int64_t rows : {std::min(shape.N, shape.chunk_rows), shape.N % shape.chunk_rows}) {
    if (rows == 0) continue;
    const auto of_chunk = linear_products(dtype, sum_dtype(shape, dtype), rows, shape.C, shape.rows, false, false);
    products.insert(products.end(), of_chunk.begin(), of_chunk.end());
  }
  return products;
}

void loss_head_forward(const LossHeadShape& shape, const Tensor& hidden, const Tensor& weight,
                       const std::int32_t* labels, double* sum, const LossHeadWorkspace& workspace) {
  kernels::zero(sum, sizeof(*sum));
  for_each_chunk(shape, hidden, weight, workspace.logits, [&](std::int64_t begin, std::int64_t count, Tensor logits) {
    dispatch(logits.dtype, [&]<class T>(T) {
      kernels::table<T>().cross_entropy_loss(count, shape.vocabulary, shape.rows, logits.as<T>(), labels + begin, sum);
    });
  });
}

void loss_head_backward(const LossHeadShape& shape, const Tensor& hidden, const Tensor& weight,
                        const std::int32_t* labels, double grad_scale, const Tensor& dhidden,
                        const GradientPlace& dweight, double* sum, const LossHeadWorkspace& workspace) {
  kernels::zero(sum, sizeof(*sum));
  const bool apart = dweight.is_wanted() && has_own_sum(shape, hidden.dtype);
  const Tensor& dweight_sum = apart ? workspace.dweight : dweight.tensor;
  if (apart && dweight.add) {
    dispatch(weight.dtype, [&]<class T>(T) {
      kernels::table<T>().cast_to_float(weight.numel(), dweight.tensor.as<T>(), workspace.dweight.as<float>());
    });
  }
  for_each_chunk(shape, hidden, weight, workspace.logits, [&](std::int64_t begin, std::int64_t count, Tensor logits) {
    dispatch(logits.dtype, [&]<class T>(T) {
      kernels::table<T>().cross_entropy(count, shape.vocabulary, shape.rows, shape.soft_cap, logits.as<T>(),
                                        labels + begin, grad_scale, sum);
    });
    const Tensor& dlogits = logits;
    linear_backward_input(dlogits, weight, rows_of(dhidden, begin, count));
    linear_backward_weight(dlogits, rows_of(hidden, begin, count), {dweight_sum, dweight.add || begin > 0});
  });
  if (apart) {
    dispatch(weight.dtype, [&]<class T>(T) {
      kernels::table<T>().cast_from_float(weight.numel(), workspace.dweight.as<float>(), dweight.tensor.as<T>());
    });
  }
}

}  // namespace trireme
