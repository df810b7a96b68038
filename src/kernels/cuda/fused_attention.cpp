#include "kernels/cuda/fused_attention.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "kernels/cuda/state.h"

namespace trireme::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorOf = std::shared_ptr<fe::graph::Tensor_attributes>;

void check(fe::error_t status, const char* what) {
  if (status.is_good()) return;
  throw Error(1305, "CUDA device", std::string(what) + ": " + status.get_message(),
              "cuDNN 9 for CUDA 13 must be the one that libtrireme_cuda.so was built with, or a later one");
}
void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw Error(1305, "CUDA device", std::string(what) + ": " + cudnnGetErrorString(status));
  }
}

struct Question {
  std::int64_t B, T, H, K, D;
  double scale;
  DType dtype;
  bool backward, deterministic;
  auto operator<=>(const Question&) const = default;  // NOLINT(modernize-use-nullptr): it means the 0 of an ordering
};

enum Id : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// Heads inside rows: [B, heads, T, D] of rows that are `row` elements long.
TensorOf heads_of(fe::graph::Graph& graph, Id id, const Question& q, std::int64_t heads, std::int64_t row) {
  return graph.tensor(
      fe::graph::Tensor_attributes().set_uid(id).set_dim({q.B, heads, q.T, q.D}).set_stride({q.T * row, q.D, row, 1}));
}
TensorOf statistics_of(fe::graph::Graph& graph, const Question& q) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(kLse)
                          .set_dim({q.B, q.H, q.T, 1})
                          .set_stride({q.H * q.T, q.T, 1, 1})
                          .set_data_type(fe::DataType_t::FLOAT));
}
void make_output(const TensorOf& tensor, Id id, const Question& q, std::int64_t heads, std::int64_t row) {
  tensor->set_output(true).set_uid(id).set_dim({q.B, heads, q.T, q.D}).set_stride({q.T * row, q.D, row, 1});
}

struct Answer {
  fe::graph::Graph graph;
  std::int64_t workspace_bytes = 0;

  Answer(const Question& q, cudnnHandle_t handle) {
    const std::int64_t row = (q.H + 2 * q.K) * q.D, out_row = q.H * q.D;
    graph.set_io_data_type(q.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const TensorOf queries = heads_of(graph, kQ, q, q.H, row), keys = heads_of(graph, kK, q, q.K, row),
                   values = heads_of(graph, kV, q, q.K, row);
    if (q.backward) {
      const auto [dq, dk, dv] = graph.sdpa_backward(queries, keys, values, heads_of(graph, kOut, q, q.H, out_row),
                                                    heads_of(graph, kDout, q, q.H, out_row), statistics_of(graph, q),
                                                    fe::graph::SDPA_backward_attributes()
                                                        .set_name("attention")
                                                        .set_causal_mask(true)
                                                        .set_deterministic_algorithm(q.deterministic)
                                                        .set_attn_scale(static_cast<float>(q.scale)));
      make_output(dq, kDq, q, q.H, row);
      make_output(dk, kDk, q, q.K, row);
      make_output(dv, kDv, q, q.K, row);
    } else {
      const auto [out, lse] = graph.sdpa(queries, keys, values,
                                         fe::graph::SDPA_attributes()
                                             .set_name("attention")
                                             .set_generate_stats(true)
                                             .set_causal_mask(true)
                                             .set_attn_scale(static_cast<float>(q.scale)));
      make_output(out, kOut, q, q.H, out_row);
      lse->set_output(true)
          .set_uid(kLse)
          .set_data_type(fe::DataType_t::FLOAT)
          .set_dim({q.B, q.H, q.T, 1})
          .set_stride({q.H * q.T, q.T, 1, 1});
    }
    check(graph.build(handle, {fe::HeurMode_t::A}), "cuDNN attention");
    check(graph.get_workspace_size(workspace_bytes), "cuDNN attention's workspace");
  }
};

// Of a device: cuDNN's handle, and what it was asked. One thread at a time.
struct Fused {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<Question, std::unique_ptr<Answer>> answers;

  const Answer& answer(const Question& question) {
    if (handle == nullptr) check(cudnnCreate(&handle), "cudnnCreate");
    std::unique_ptr<Answer>& answer = answers[question];
    if (answer == nullptr) answer = std::make_unique<Answer>(question, handle);
    return *answer;
  }
};

Fused& fused_of(int device) {
  static std::mutex mutex;
  static std::map<int, Fused> all;
  const std::lock_guard lock(mutex);
  return all[device];
}

void run(const Question& question, std::unordered_map<std::int64_t, void*> places, void* workspace) {
  const StreamState& state = current();
  Fused& fused = fused_of(state.device);
  const std::lock_guard lock(fused.mutex);
  const Answer& answer = fused.answer(question);
  check(cudnnSetStream(fused.handle, state.stream), "cudnnSetStream");
  check(answer.graph.execute(fused.handle, places, workspace), "cuDNN attention");
}

Question question_of(const AttentionShape& s, DType dtype, bool backward) {
  return {s.B, s.T, s.H, s.K, s.D, s.scale, dtype, backward, s.deterministic || !backward};
}

struct Heads {
  char *q, *k, *v;
  Heads(const AttentionShape& s, const void* qkv)
      : q(static_cast<char*>(const_cast<void*>(qkv))), k(q + 2 * s.H * s.D), v(k + 2 * s.K * s.D) {}
};

}  // namespace

bool is_fused(const AttentionShape& s, DType dtype, const Dropout& dropout, const std::int32_t* starts) {
  return size_of(dtype) == 2 && s.T > 1 && starts == nullptr && dropout.probability == 0 && s.soft_cap == 0 &&
         s.D % 8 == 0 && s.D <= 128;
}

void fused_attention_forward(const AttentionShape& s, DType dtype, const void* qkv, void* out, float* lse,
                             void* workspace) {
  const Heads heads(s, qkv);
  run(question_of(s, dtype, false), {{kQ, heads.q}, {kK, heads.k}, {kV, heads.v}, {kOut, out}, {kLse, lse}}, workspace);
}

void fused_attention_backward(const AttentionShape& s, DType dtype, const void* qkv, const void* out, const float* lse,
                              const void* dout, void* dqkv, void* workspace) {
  const Heads heads(s, qkv), gradients(s, dqkv);
  run(question_of(s, dtype, true),
      {{kQ, heads.q},
       {kK, heads.k},
       {kV, heads.v},
       {kOut, const_cast<void*>(out)},
       {kLse, const_cast<float*>(lse)},
       {kDout, const_cast<void*>(dout)},
       {kDq, gradients.q},
       {kDk, gradients.k},
       {kDv, gradients.v}},
      workspace);
}

std::int64_t fused_attention_workspace(const AttentionShape& s, DType dtype, bool backward) {
  if (!is_fused(s, dtype, {}, nullptr)) return 0;
  int device = 0;
  TRIREME_CUDA(cudaGetDevice(&device));
  Fused& fused = fused_of(device);
  const std::lock_guard lock(fused.mutex);
  return fused.answer(question_of(s, dtype, backward)).workspace_bytes;
}

}  // namespace trireme::kernels::cuda
