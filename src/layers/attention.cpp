#include "layers/attention.h"

#include <cmath>

#include "kernels/kernels.h"
#include "layers/dispatch.h"

namespace trireme {
namespace {

double scale_of(const AttentionShape& s) {
  return 1.0 / std::sqrt(static_cast<double>(s.D));
}

// The kernel gives each thread a part of the workspace, so one sized for fewer threads would be overrun.
void check_workspace(const AttentionShape& s, DType dtype, const Tensor& workspace) {
  if (workspace.bytes() < attention_workspace_bytes(s, dtype, kernels::num_threads())) {
    throw Error(1206, "attention",
                "its workspace was planned for fewer compute threads than this thread has now (" +
                    std::to_string(kernels::num_threads()) + ")",
                "set the number of compute threads before the model is made");
  }
}

}  // namespace

void attention_forward(const AttentionShape& s, const Tensor& qkv, const std::int32_t* starts, const Tensor& out,
                       const Tensor& lse, const Tensor& workspace) {
  check_workspace(s, qkv.dtype, workspace);
  dispatch(qkv.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().attention_forward(s.B, s.T, s.H, s.K, s.D, scale_of(s), qkv.as<T>(), starts, out.as<T>(),
                                          lse.as<Acc>(), workspace.data);
  });
}

void attention_backward(const AttentionShape& s, const Tensor& qkv, const std::int32_t* starts, const Tensor& out,
                        const Tensor& lse, const Tensor& dout, const Tensor& dqkv, const Tensor& workspace) {
  check_workspace(s, qkv.dtype, workspace);
  dispatch(qkv.dtype, [&]<class T>(T) {
    using Acc = typename kernels::AccumulatorOf<T>::type;
    kernels::table<T>().attention_backward(s.B, s.T, s.H, s.K, s.D, scale_of(s), qkv.as<T>(), starts, out.as<T>(),
                                           lse.as<Acc>(), dout.as<T>(), dqkv.as<T>(), workspace.data);
  });
}

std::int64_t attention_workspace_bytes(const AttentionShape& s, DType dtype, int threads) {
  return kernels::attention_workspace(dtype, s.T, s.D, threads);
}

}  // namespace trireme
