#include "parity/reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>

namespace trireme::parity {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor to_torch(const Value& value) {
  return at::from_blob(const_cast<double*>(value.data.data()), value.sizes, at::kDouble).clone();
}

Value from_torch(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  const double* data = dense.data_ptr<double>();
  return {dense.sizes().vec(), std::vector<double>(data, data + dense.numel())};
}

// dy may have the same elements in another shape.
Derivative differentiate(const std::vector<Value>& inputs, const Value& dy,
                         const std::function<at::Tensor(const Tensors&)>& formula) {
  Tensors leaves;
  for (const Value& input : inputs) leaves.push_back(to_torch(input).requires_grad_(true));
  const at::Tensor value = formula(leaves);
  (value * to_torch(dy).view(value.sizes())).sum().backward();
  Derivative result{from_torch(value), {}};
  for (const at::Tensor& leaf : leaves) result.gradients.push_back(from_torch(leaf.grad()));
  return result;
}

Value scalar(double value) {
  return {{}, {value}};
}

at::Tensor project(const at::Tensor& x, const at::Tensor& w) {
  return at::matmul(x, w.t());
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& w, double eps) {
  return x * at::rsqrt((x * x).mean(-1, true) + eps) * w.view({-1});
}

// Cosines or sines [N, D/2], rounded to float as the model's table is.
at::Tensor angles(double (*function)(double), const std::vector<std::int32_t>& positions, std::int64_t D,
                  double theta) {
  Value table{{std::ssize(positions), D / 2}, {}};
  for (const std::int32_t position : positions) {
    for (std::int64_t i = 0; i < D / 2; ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(D));
      table.data.push_back(static_cast<float>(function(position * frequency)));
    }
  }
  return to_torch(table);
}

// x [N, heads, D], pairs (i, i + D/2).
at::Tensor rotate(const at::Tensor& x, const std::vector<std::int32_t>& positions, double theta) {
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor cosine = angles(std::cos, positions, 2 * half, theta).unsqueeze(1);
  const at::Tensor sine = angles(std::sin, positions, 2 * half, theta).unsqueeze(1);
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  return at::cat({a * cosine - b * sine, b * cosine + a * sine}, 2);
}

// True where position t of a sequence may not see position j: [B, 1, T, T].
at::Tensor hidden_positions(const AttentionShape& s, const std::vector<std::int32_t>& starts) {
  at::Tensor mask = at::zeros({s.B, 1, s.T, s.T}, at::kBool);
  auto* cell = mask.data_ptr<bool>();
  for (std::int64_t n = 0; n < s.B * s.T; ++n) {
    for (std::int64_t j = 0; j < s.T; ++j) *cell++ = j < starts[n] || j > n % s.T;
  }
  return mask;
}

// qkv [B*T, (H+2K)*D] to [B*T, H*D].
at::Tensor attend(const AttentionShape& s, const at::Tensor& qkv, const std::vector<std::int32_t>& starts) {
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return qkv.narrow(1, first * s.D, count * s.D).view({s.B, s.T, count, s.D}).transpose(1, 2);
  };
  const at::Tensor q = heads(0, s.H);
  const at::Tensor k = at::repeat_interleave(heads(s.H, s.K), s.H / s.K, 1);
  const at::Tensor v = at::repeat_interleave(heads(s.H + s.K, s.K), s.H / s.K, 1);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(s.D));
  const at::Tensor weights = at::softmax(scores.masked_fill(hidden_positions(s, starts), -INFINITY), -1);
  return at::matmul(weights, v).transpose(1, 2).reshape({s.B * s.T, s.H * s.D});
}

at::Tensor feed_forward(const at::Tensor& x, const at::Tensor& gate_up, const at::Tensor& down) {
  const std::int64_t F = gate_up.size(0) / 2;
  const at::Tensor gate = project(x, gate_up.narrow(0, 0, F)), up = project(x, gate_up.narrow(0, F, F));
  return project(at::silu(gate) * up, down);
}

at::Tensor indices(const std::vector<std::int32_t>& values) {
  at::Tensor result = at::zeros({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), result.data_ptr<std::int64_t>());
  return result;
}

at::Tensor cross_entropy(const at::Tensor& logits, const std::vector<std::int32_t>& labels) {
  const at::Tensor losses = -at::log_softmax(logits, -1);
  at::Tensor wanted = at::zeros(logits.sizes(), at::kDouble);
  for (std::size_t n = 0; n < labels.size(); ++n) {
    if (labels[n] >= 0) wanted.data_ptr<double>()[static_cast<std::int64_t>(n) * logits.size(1) + labels[n]] = 1;
  }
  return (losses * wanted).sum();
}

at::Tensor run_block(const LlamaConfig& c, const Inputs& inputs, const at::Tensor& x, const at::Tensor* p) {
  const AttentionShape s{inputs.shape.batch, inputs.shape.sequence, c.num_heads, c.num_key_value_heads, c.head_dim};
  const std::int64_t rotated = (s.H + s.K) * s.D;
  const at::Tensor qkv = project(normalize(x, p[0], c.rms_norm_eps), p[1]);
  const at::Tensor turned =
      rotate(qkv.narrow(1, 0, rotated).view({-1, s.H + s.K, s.D}), inputs.positions, c.rope.theta);
  const at::Tensor whole = at::cat({turned.reshape({-1, rotated}), qkv.narrow(1, rotated, s.K * s.D)}, 1);
  const at::Tensor residual = x + project(attend(s, whole, inputs.starts), p[2]);
  return residual + feed_forward(normalize(residual, p[3], c.rms_norm_eps), p[4], p[5]);
}

at::Tensor run_logits(const LlamaConfig& c, const at::Tensor& x, const at::Tensor& norm, const at::Tensor& matrix) {
  return project(normalize(x, norm, c.rms_norm_eps), matrix.narrow(0, 0, c.vocabulary));
}

at::Tensor run_body(const LlamaConfig& c, const Inputs& inputs, const Tensors& p) {
  at::Tensor x = at::index_select(p[0], 0, indices(inputs.ids));
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) x = run_block(c, inputs, x, &p[1 + 6 * layer]);
  return run_logits(c, x, p[1 + 6 * c.num_layers], c.tie_word_embeddings ? p[0] : p.back());
}

std::vector<Value> with(const Value& x, const std::vector<Value>& parameters) {
  std::vector<Value> all{x};
  all.insert(all.end(), parameters.begin(), parameters.end());
  return all;
}

}  // namespace

Derivative linear(const Value& x, const Value& w, const Value& dy) {
  return differentiate({x, w}, dy, [](const Tensors& in) { return project(in[0], in[1]); });
}

Derivative rmsnorm(const Value& x, const Value& w, double eps, const Value& dy) {
  return differentiate({x, w}, dy, [&](const Tensors& in) { return normalize(in[0], in[1], eps); });
}

Derivative rope(const Value& x, std::int64_t heads, std::int64_t D, double theta,
                const std::vector<std::int32_t>& positions, const Value& dy) {
  return differentiate({x}, dy, [&](const Tensors& in) {
    return rotate(in[0].view({-1, heads, D}), positions, theta).reshape({-1, heads * D});
  });
}

Derivative attention(const AttentionShape& shape, const Value& qkv, const std::vector<std::int32_t>& starts,
                     const Value& dy) {
  return differentiate({qkv}, dy, [&](const Tensors& in) { return attend(shape, in[0], starts); });
}

Derivative mlp(const Value& x, const Value& gate_up, const Value& down, const Value& dy) {
  return differentiate({x, gate_up, down}, dy, [](const Tensors& in) { return feed_forward(in[0], in[1], in[2]); });
}

Derivative embedding(const std::vector<std::int32_t>& ids, const Value& w, const Value& dy) {
  return differentiate({w}, dy, [&](const Tensors& in) { return at::index_select(in[0], 0, indices(ids)); });
}

Derivative loss_head(const Value& hidden, const Value& weight, std::int64_t V, const std::vector<std::int32_t>& labels,
                     double dy) {
  return differentiate({hidden, weight}, scalar(dy),
                       [&](const Tensors& in) { return cross_entropy(project(in[0], in[1].narrow(0, 0, V)), labels); });
}

Derivative block(const LlamaConfig& config, const Inputs& inputs, const Value& x, const std::vector<Value>& parameters,
                 const Value& dy) {
  return differentiate(with(x, parameters), dy,
                       [&](const Tensors& in) { return run_block(config, inputs, in[0], &in[1]); });
}

Derivative head(const LlamaConfig& config, const Inputs& inputs, const Value& x, const std::vector<Value>& parameters,
                double dy) {
  return differentiate(with(x, parameters), scalar(dy), [&](const Tensors& in) {
    return cross_entropy(run_logits(config, in[0], in[1], in[2]), inputs.labels);
  });
}

Derivative llama(const LlamaConfig& config, const Inputs& inputs, const std::vector<Value>& parameters, double dy) {
  return differentiate(parameters, scalar(dy),
                       [&](const Tensors& in) { return cross_entropy(run_body(config, inputs, in), inputs.labels); });
}

Value logits(const LlamaConfig& config, const Inputs& inputs, const std::vector<Value>& parameters,
             const std::vector<std::int64_t>& positions) {
  Tensors p;
  for (const Value& parameter : parameters) p.push_back(to_torch(parameter));
  std::vector<std::int32_t> rows;
  for (std::size_t b = 0; b < positions.size(); ++b) {
    rows.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(b) * inputs.shape.sequence + positions[b]));
  }
  return from_torch(at::index_select(run_body(config, inputs, p), 0, indices(rows)));
}

}  // namespace trireme::parity
