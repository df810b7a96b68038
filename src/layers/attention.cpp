#include "layers/attention.h"

#include "layout/dispatch.h"

namespace trireme {
namespace {

// The kernel gives each thread a part of the workspace, so one sized for fewer threads would be overrun.
void check_workspace(const AttentionShape& s, DType dtype, Phase phase, const Tensor& workspace) {
  if (workspace.bytes() < attention_workspace_bytes(s, dtype, phase, kernels::num_threads())) {
    throw Error(1206, "attention",
                "its workspace was planned for fewer compute threads than this thread has now (" +
                    std::to_string(kernels::num_threads()) + ")",
                "set the number of compute threads before the model is made");
  }
}

}  // namespace

void attention_forward(const AttentionShape& s, const kernels::Dropout& dropout, const Tensor& qkv,
                       const std::int32_t* starts, const Tensor& out, const Tensor& lse, const Tensor& workspace) {
  check_workspace(s, qkv.dtype, Phase::forward, workspace);
  dispatch(qkv.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().attention_forward(s, dropout, qkv.as<T>(), starts, out.as<T>(), lse.as<Acc>(), workspace.data);
  });
}

void attention_cached(const AttentionShape& s, const Tensor& qkv, std::byte* const* key_values,
                      const std::int32_t* past, const std::int32_t* starts, const Tensor& out, const Tensor& lse,
                      const Tensor& workspace) {
  check_workspace(s, qkv.dtype, Phase::forward, workspace);
  dispatch(qkv.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().attention_cached(s, qkv.as<T>(), key_values, past, starts, out.as<T>(), lse.as<Acc>(),
                                         workspace.data);
  });
}

void attention_backward(const AttentionShape& s, const kernels::Dropout& dropout, const Tensor& qkv,
                        const std::int32_t* starts, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Tensor& dqkv, const Tensor& workspace) {
  check_workspace(s, qkv.dtype, Phase::backward, workspace);
  dispatch(qkv.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().attention_backward(s, dropout, qkv.as<T>(), starts, out.as<T>(), lse.as<Acc>(), dout.as<T>(),
                                           dqkv.as<T>(), workspace.data);
  });
}

std::int64_t attention_workspace_bytes(const AttentionShape& s, DType dtype, Phase phase, int threads) {
  return kernels::attention_workspace(s, dtype, phase == Phase::backward, threads);
}

// The largest is that of a block of rows with all keys. Each thread computes products of its own.
std::int64_t attention_scratch_bytes(const AttentionShape& s, DType dtype, int threads) {
  return threads * kernels::product_scratch(dtype, false, kernels::kAttentionMaxRows, s.positions(), s.D, 1);
}

void starts_in_window(const Batch& batch, std::int64_t window, std::int32_t* out) {
  kernels::flat_table().first_in_window(batch.shape.batch, batch.shape.sequence, window, batch.starts, batch.past, out);
}

}  // namespace trireme
