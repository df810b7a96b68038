#include "parity/reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/random.h"

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

// dy may have the same elements in another shape. frozen: per input; empty: none.
Derivative differentiate(const std::vector<Value>& inputs, const Value& dy,
                         const std::function<at::Tensor(const Tensors&)>& formula,
                         const std::vector<bool>& frozen = {}) {
  Tensors leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(to_torch(inputs[i]).requires_grad_(frozen.empty() || !frozen[i]));
  }
  const at::Tensor value = formula(leaves);
  (value * to_torch(dy).view(value.sizes())).sum().backward();
  Derivative result{from_torch(value), {}};
  for (const at::Tensor& leaf : leaves) {
    result.gradients.push_back(from_torch(leaf.requires_grad() ? leaf.grad() : at::zeros_like(leaf)));
  }
  return result;
}

Value scalar(double value) {
  return {{}, {value}};
}

at::Tensor project(const at::Tensor& x, const at::Tensor& w) {
  return at::matmul(x, w.t());
}

at::Tensor normalize(const at::Tensor& x, const at::Tensor& w, double eps, bool one_plus = false) {
  const at::Tensor weight = one_plus ? w.view({-1}) + 1 : w.view({-1});
  return x * at::rsqrt((x * x).mean(-1, true) + eps) * weight;
}

at::Tensor centre(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps) {
  const at::Tensor moved = x - x.mean(-1, true);
  return moved * at::rsqrt((moved * moved).mean(-1, true) + eps) * w.view({-1}) + b.view({-1});
}

at::Tensor cap(const at::Tensor& x, double limit) {
  return limit > 0 ? at::tanh(x / limit) * limit : x;
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::silu: return at::silu(x);
    case Activation::gelu_tanh: return at::gelu(x, "tanh");
    case Activation::gelu: return at::gelu(x);
    case Activation::relu: return at::relu(x);
  }
  return {};
}

// What dropout multiplies n elements of each sample by, [B, n]: as kernels.h says it, one element at a time.
at::Tensor factors(const kernels::Dropout& dropout, std::int64_t B, std::int64_t n) {
  Value result{{B, n}, {}};
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t e = 0; e < n; ++e) {
      const auto words =
          random_block(dropout.keys[b], dropout.stream, static_cast<std::uint64_t>(e / 64 * 16 + e % 16));
      const bool drop = words[e / 16 % 4] < dropout.probability * 4294967296.0;
      result.data.push_back(drop ? 0 : 1 / (1 - dropout.probability));
    }
  }
  return to_torch(result);
}

at::Tensor drop(const kernels::Dropout& dropout, std::int64_t B, const at::Tensor& x) {
  return dropout.probability > 0 ? x * factors(dropout, B, x.numel() / B).view(x.sizes()) : x;
}

// Cosines or sines [N, D/2], rounded to float where the model's table is.
at::Tensor angles(double (*function)(double), const std::vector<std::int32_t>& positions, std::int64_t D,
                  double theta) {
  Value table{{std::ssize(positions), D / 2}, {}};
  for (const std::int32_t position : positions) {
    for (std::int64_t i = 0; i < D / 2; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(D);
      const float frequency = 1.0f / std::pow(static_cast<float>(theta), exponent);
      table.data.push_back(static_cast<float>(function(static_cast<float>(position) * frequency)));
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
at::Tensor attend(const AttentionShape& s, const kernels::Dropout& dropout, const at::Tensor& qkv,
                  const std::vector<std::int32_t>& starts) {
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return qkv.narrow(1, first * s.D, count * s.D).view({s.B, s.T, count, s.D}).transpose(1, 2);
  };
  const at::Tensor q = heads(0, s.H);
  const at::Tensor k = at::repeat_interleave(heads(s.H, s.K), s.H / s.K, 1);
  const at::Tensor v = at::repeat_interleave(heads(s.H + s.K, s.K), s.H / s.K, 1);
  const at::Tensor scores = cap(at::matmul(q, k.transpose(2, 3)) * s.scale, s.soft_cap);
  at::Tensor weights = at::softmax(scores.masked_fill(hidden_positions(s, starts), -INFINITY), -1);
  if (dropout.probability > 0) {
    const std::int64_t row = (s.T + 63) / 64 * 64;
    weights = weights * factors(dropout, s.B, s.H * s.T * row).view({s.B, s.H, s.T, row}).narrow(3, 0, s.T);
  }
  return at::matmul(weights, v).transpose(1, 2).reshape({s.B * s.T, s.H * s.D});
}

// With the biases that there are; w [O, I].
at::Tensor feed_forward(const MlpKind& kind, const at::Tensor& x, const at::Tensor& up, const at::Tensor& up_bias,
                        const at::Tensor& down) {
  at::Tensor wide = project(x, up);
  if (up_bias.defined()) wide = wide + up_bias.view({-1});
  if (!kind.gated) return project(activate(kind.activation, wide), down);
  const std::int64_t F = up.size(0) / 2;
  return project(activate(kind.activation, wide.narrow(1, 0, F)) * wide.narrow(1, F, F), down);
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

// What a query of the layer may see.
std::vector<std::int32_t> windowed(const Inputs& inputs, std::int64_t window) {
  std::vector<std::int32_t> starts = inputs.starts;
  for (std::int64_t n = 0; window > 0 && n < std::ssize(starts); ++n) {
    starts[n] = std::max<std::int32_t>(starts[n], static_cast<std::int32_t>(n % inputs.shape.sequence - window + 1));
  }
  return starts;
}

// A Llama's block, whose parameters p points to and passes.
at::Tensor run_block(const LlamaConfig& c, std::int64_t layer, const Inputs& inputs, const at::Tensor& x,
                     const at::Tensor*& p) {
  const double scale = c.attention_scale > 0 ? c.attention_scale : 1 / std::sqrt(static_cast<double>(c.head_dim));
  const AttentionShape s{
      inputs.shape.batch,  inputs.shape.sequence, c.num_heads, c.num_key_value_heads, c.head_dim, scale,
      c.attention_soft_cap};
  const auto norm = [&](const at::Tensor& input) {
    return normalize(input, *p++, c.rms_norm_eps, c.one_plus_norm_weights);
  };
  const auto biased = [&](const at::Tensor& value, bool bias) { return bias ? value + (*p++).view({-1}) : value; };
  const std::int64_t window = c.windows.empty() ? 0 : c.windows[layer];
  const double theta = window > 0 && c.windowed_rope ? c.windowed_rope->theta : c.rope.theta;
  const at::Tensor normed = norm(x);
  const at::Tensor& matrix = *p++;
  const at::Tensor qkv = biased(project(normed, matrix), c.qkv_bias);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return qkv.narrow(1, first * s.D, count * s.D).view({-1, count, s.D});
  };
  at::Tensor q = heads(0, s.H), k = heads(s.H, s.K);
  if (c.query_key_norms) q = norm(q), k = norm(k);
  const at::Tensor turned = rotate(at::cat({q, k}, 1), inputs.positions, theta);
  const at::Tensor whole =
      at::cat({turned.reshape({-1, (s.H + s.K) * s.D}), qkv.narrow(1, (s.H + s.K) * s.D, s.K * s.D)}, 1);
  at::Tensor branch = project(attend(s, {}, whole, windowed(inputs, window)), *p++);
  branch = biased(branch, c.attention_output_bias);
  if (c.post_norms) branch = norm(branch);
  const at::Tensor residual = x + branch, between = norm(residual);
  const at::Tensor& up = *p++;
  const at::Tensor up_bias = c.mlp_bias ? *p++ : at::Tensor();
  const at::Tensor& down = *p++;
  branch = biased(feed_forward({c.activation, true}, between, up, up_bias, down), c.mlp_bias);
  if (c.post_norms) branch = norm(branch);
  return residual + branch;
}

at::Tensor run_logits(const LlamaConfig& c, const at::Tensor& x, const at::Tensor& norm, const at::Tensor& matrix) {
  const at::Tensor normed = normalize(x, norm, c.rms_norm_eps, c.one_plus_norm_weights);
  return cap(project(normed, matrix.narrow(0, 0, c.vocabulary)), c.logit_soft_cap);
}

at::Tensor run_body(const LlamaConfig& c, const Inputs& inputs, const Tensors& p) {
  at::Tensor x = at::index_select(p[0], 0, indices(inputs.ids)) * c.embedding_scale;
  const at::Tensor* next = &p[1];
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) x = run_block(c, layer, inputs, x, next);
  return run_logits(c, x, *next, c.tie_word_embeddings ? p[0] : p.back());
}

// GPT-2 with its dropout, for a tied head. Its matrices are [I, O].
at::Tensor run_gpt2(const Gpt2Config& c, const Inputs& inputs, const Tensors& p) {
  const std::int64_t B = inputs.shape.batch;
  const AttentionShape s{B, inputs.shape.sequence, c.num_heads, c.num_heads, c.hidden_size / c.num_heads};
  const auto dropout = [&](double probability, const std::string& stream) {
    return kernels::Dropout{probability, inputs.dropout_keys.data(), stream_id(stream)};
  };
  const at::Tensor* next = &p[2];
  const auto norm = [&](const at::Tensor& x) {
    const at::Tensor *w = next++, *b = next++;
    return centre(x, *w, *b, c.layer_norm_eps);
  };
  const auto linear = [&](const at::Tensor& x) {
    const at::Tensor *w = next++, *b = next++;
    return at::matmul(x, *w) + b->view({-1});
  };
  at::Tensor x = at::index_select(p[0], 0, indices(inputs.ids)) + at::index_select(p[1], 0, indices(inputs.positions));
  x = drop(dropout(c.embedding_dropout, "embed/dropout"), B, x);
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + "/dropout/";
    AttentionShape shape = s;
    shape.scale = (c.scale_attention ? 1 / std::sqrt(static_cast<double>(s.D)) : 1) /
                  (c.scale_attention_by_layer ? static_cast<double>(layer + 1) : 1);
    const at::Tensor qkv = linear(norm(x));
    const at::Tensor heads = attend(shape, dropout(c.attention_dropout, name + "attention"), qkv, inputs.starts);
    x = x + drop(dropout(c.residual_dropout, name + "attention_output"), B, linear(heads));
    const at::Tensor wide = linear(norm(x));
    x = x + drop(dropout(c.residual_dropout, name + "mlp"), B, linear(activate(c.activation, wide)));
  }
  return project(norm(x), p[0].narrow(0, 0, c.vocabulary));
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

Derivative layernorm(const Value& x, const Value& w, const Value& b, double eps, const Value& dy) {
  return differentiate({x, w, b}, dy, [&](const Tensors& in) { return centre(in[0], in[1], in[2], eps); });
}

Derivative biased_linear(const Value& x, const Value& w, const Value& b, const Value& dy) {
  return differentiate({x, w, b}, dy, [](const Tensors& in) { return at::matmul(in[0], in[1]) + in[2].view({-1}); });
}

Derivative attention(const AttentionShape& shape, const kernels::Dropout& dropout, const Value& qkv,
                     const std::vector<std::int32_t>& starts, const Value& dy) {
  return differentiate({qkv}, dy, [&](const Tensors& in) { return attend(shape, dropout, in[0], starts); });
}

Derivative mlp(const MlpKind& kind, const Value& x, const Value& up, const Value& down, const Value& dy) {
  return differentiate({x, up, down}, dy,
                       [&](const Tensors& in) { return feed_forward(kind, in[0], in[1], {}, in[2]); });
}

Derivative embedding(const std::vector<std::int32_t>& ids, const Value& w, const Value& dy) {
  return differentiate({w}, dy, [&](const Tensors& in) { return at::index_select(in[0], 0, indices(ids)); });
}

Derivative loss_head(const Value& hidden, const Value& weight, std::int64_t V, const std::vector<std::int32_t>& labels,
                     double soft_cap, double dy) {
  return differentiate({hidden, weight}, scalar(dy), [&](const Tensors& in) {
    return cross_entropy(cap(project(in[0], in[1].narrow(0, 0, V)), soft_cap), labels);
  });
}

Derivative block(const LlamaConfig& config, const Inputs& inputs, const Value& x, const std::vector<Value>& parameters,
                 const Value& dy) {
  return differentiate(with(x, parameters), dy, [&](const Tensors& in) {
    const at::Tensor* next = &in[1];
    return run_block(config, 0, inputs, in[0], next);
  });
}

Derivative head(const LlamaConfig& config, const Inputs& inputs, const Value& x, const std::vector<Value>& parameters,
                double dy) {
  return differentiate(with(x, parameters), scalar(dy), [&](const Tensors& in) {
    return cross_entropy(run_logits(config, in[0], in[1], in[2]), inputs.labels);
  });
}

Derivative llama(const LlamaConfig& config, const Inputs& inputs, const std::vector<Value>& parameters, double dy,
                 const std::vector<bool>& frozen) {
  return differentiate(
      parameters, scalar(dy),
      [&](const Tensors& in) { return cross_entropy(run_body(config, inputs, in), inputs.labels); }, frozen);
}

Derivative gpt2(const Gpt2Config& config, const Inputs& inputs, const std::vector<Value>& parameters, double dy,
                const std::vector<bool>& frozen) {
  return differentiate(
      parameters, scalar(dy),
      [&](const Tensors& in) { return cross_entropy(run_gpt2(config, inputs, in), inputs.labels); }, frozen);
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
