// Every layer's value and gradients equal LibTorch's autograd on the plain formula, at the CPU level in use.
#include <cmath>

#include "layers/embedding.h"
#include "layers/linear.h"
#include "layers/loss_head.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "layers/rope.h"
#include "parity/fixture.h"

namespace trireme::parity {
namespace {

class Layers : public Parity {
 protected:
  // Of a matrix's gradient: the layer's own, or where that is of 16 bits fp32.
  DType matrix_gradient_dtype() { return size_of(dtype()) == 2 && random_.below(2) == 0 ? DType::f32 : dtype(); }
};

TEST_P(Layers, Linear) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), I = c.config.hidden_size, O = c.config.intermediate_size;
    const Value x = normal({N, I}), w = normal({O, I}), dy = normal({N, O});
    const Derivative expected = linear(x, w, dy);
    const Buffer bx(x, dtype()), bw(w, dtype()), bdy(dy, dtype()), y(dy, dtype()), dx(x, dtype());
    const Gradient dw(expected.gradients[1], matrix_gradient_dtype(), add, random_);
    linear_forward(bx.tensor(), bw.tensor(), y.tensor());
    linear_backward_input(bdy.tensor(), bw.tensor(), dx.tensor());
    linear_backward_weight(bdy.tensor(), bx.tensor(), dw.place());
    expect_near(y.read(), expected.value, "y");
    expect_near(dx.read(), expected.gradients[0], "dx");
    expect_near(dw, expected.gradients[1], "dw");
  });
}

TEST_P(Layers, LinearWithBiasAndInputMajorWeights) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), I = c.config.hidden_size, O = c.config.intermediate_size;
    const Value x = normal({N, I}), w = normal({I, O}), b = normal({1, O}), dy = normal({N, O});
    const Derivative expected = biased_linear(x, w, b, dy);
    const Buffer bx(x, dtype()), bw(w, dtype()), bb(b, dtype()), bdy(dy, dtype()), dx(x, dtype());
    const Gradient y(expected.value, dtype(), add, random_),
        dw(expected.gradients[1], matrix_gradient_dtype(), add, random_),
        db(expected.gradients[2], dtype(), add, random_);
    const LinearWeights weights{bw.tensor(), bb.tensor(), true};
    linear_forward(bx.tensor(), weights, y.tensor(), add ? y.tensor() : Tensor());
    linear_backward_input(bdy.tensor(), weights, dx.tensor());
    linear_backward_weight(bdy.tensor(), bx.tensor(), weights, {dw.place(), db.place()});
    expect_near(y, expected.value, "y");
    expect_near(dx.read(), expected.gradients[0], "dx");
    expect_near(dw, expected.gradients[1], "dw");
    expect_near(db, expected.gradients[2], "db");
  });
}

TEST_P(Layers, LayerNorm) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), C = c.config.hidden_size;
    Value x = normal({N, C});
    for (double& value : x.data) value += 3;  // a mean that would cancel
    x = Buffer(x, dtype()).read();
    const Value w = normal({1, C}), b = normal({1, C}), dy = normal({N, C});
    const Norm norm{.eps = 1e-3, .centred = true};
    const Derivative expected = layernorm(x, w, b, norm.eps, dy);
    const Buffer bx(x, dtype()), bw(w, dtype()), bb(b, dtype()), bdy(dy, dtype()), y(dy, dtype()), again(dy, dtype());
    const Buffer rstd(Value{{N}, std::vector<double>(N)}, accumulator_of(dtype()));
    const Buffer mean(Value{{N}, std::vector<double>(N)}, accumulator_of(dtype()));
    const NormStatistics kept{rstd.tensor(), mean.tensor()};
    const Gradient dx(expected.gradients[0], dtype(), add, random_), dw(expected.gradients[1], dtype(), add, random_),
        db(expected.gradients[2], dtype(), add, random_);
    norm_forward(norm, bx.tensor(), {bw.tensor(), bb.tensor()}, y.tensor(), kept);
    norm_backward(norm, bx.tensor(), {bw.tensor(), bb.tensor()}, kept, bdy.tensor(), add ? dx.tensor() : Tensor(),
                  dx.tensor(), {dw.place(), db.place()}, again.tensor());
    expect_near(y.read(), expected.value, "y");
    EXPECT_EQ(again.read().data, y.read().data) << "y once more";
    expect_near(dx, expected.gradients[0], "dx");
    expect_near(dw, expected.gradients[1], "dw");
    expect_near(db, expected.gradients[2], "db");
  });
}

TEST_P(Layers, RmsNorm) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), C = c.config.hidden_size;
    const Value x = normal({N, C}), w = normal({1, C}), dy = normal({N, C});
    const Derivative expected = rmsnorm(x, w, 1e-3, dy);
    const Buffer bx(x, dtype()), bw(w, dtype()), bdy(dy, dtype()), y(dy, dtype()), again(dy, dtype());
    const Buffer rstd(Value{{N}, std::vector<double>(N)}, accumulator_of(dtype()));
    const Gradient dx(expected.gradients[0], dtype(), add, random_), dw(expected.gradients[1], dtype(), add, random_);
    const Norm norm{.eps = 1e-3};
    norm_forward(norm, bx.tensor(), {bw.tensor(), {}}, y.tensor(), {rstd.tensor(), {}});
    norm_backward(norm, bx.tensor(), {bw.tensor(), {}}, {rstd.tensor(), {}}, bdy.tensor(), add ? dx.tensor() : Tensor(),
                  dx.tensor(), {dw.place(), {}}, again.tensor());
    expect_near(y.read(), expected.value, "y");
    EXPECT_EQ(again.read().data, y.read().data) << "y once more";
    expect_near(dx, expected.gradients[0], "dx");
    expect_near(dw, expected.gradients[1], "dw");
  });
}

// The gradient may take the place of the one that it is made from.
TEST_P(Layers, RmsNormInPlace) {
  for_each_case([&](const Case& c, bool) {
    const std::int64_t N = c.inputs.shape.tokens(), C = c.config.hidden_size;
    const Value x = normal({N, C}), w = normal({1, C}), dy = normal({N, C});
    const Derivative expected = rmsnorm(x, w, 1e-5, dy);
    const Buffer bx(x, dtype()), bw(w, dtype()), gradient(dy, dtype()), y(dy, dtype()), dw(w, dtype());
    const Buffer rstd(Value{{N}, std::vector<double>(N)}, accumulator_of(dtype()));
    const Norm norm{.eps = 1e-5};
    norm_forward(norm, bx.tensor(), {bw.tensor(), {}}, y.tensor(), {rstd.tensor(), {}});
    norm_backward(norm, bx.tensor(), {bw.tensor(), {}}, {rstd.tensor(), {}}, gradient.tensor(), {}, gradient.tensor(),
                  {{dw.tensor(), false}, {}});
    expect_near(gradient.read(), expected.gradients[0], "dx");
    expect_near(dw.read(), expected.gradients[1], "dw");
  });
}

TEST_P(Layers, Rope) {
  for_each_case([&](const Case& c, bool) {
    const std::int64_t N = c.inputs.shape.tokens(), heads = c.config.num_heads, D = c.config.head_dim;
    const Value x = normal({N, heads * D}), dy = normal({N, heads * D});
    const Derivative expected = rope(x, heads, D, c.config.rope.theta, c.inputs.positions, dy);
    const RopeTable table = make_rope_tables(c.config.max_positions, D, {c.config.rope.theta, {}}, "rope").table;
    const Buffer y(x, dtype()), dx(dy, dtype());
    rope_forward(y.tensor(), heads, D, c.inputs.positions.data(), table);
    rope_backward(dx.tensor(), heads, D, c.inputs.positions.data(), table);
    expect_near(y.read(), expected.value, "y");
    expect_near(dx.read(), expected.gradients[0], "dx");
  });
}

TEST_P(Layers, Attention) {
  for_each_case([&](const Case& c, bool with_dropout) {
    const LlamaConfig& m = c.config;
    const AttentionShape s{c.inputs.shape.batch, c.inputs.shape.sequence,
                           m.num_heads,          m.num_key_value_heads,
                           m.head_dim,           1 / std::sqrt(static_cast<double>(m.head_dim)),
                           m.attention_soft_cap};
    const std::vector<std::uint64_t> keys{seed_, seed_ + 1, seed_ + 2};
    const kernels::Dropout dropout{with_dropout ? 0.25 : 0.0, keys.data(), 5};
    const std::int64_t N = s.B * s.T;
    const Value qkv = normal({N, s.qkv_width()}), dy = normal({N, s.H * s.D});
    const Derivative expected = attention(s, dropout, qkv, c.inputs.starts, dy);
    const Buffer bqkv(qkv, dtype()), y(dy, dtype()), bdy(dy, dtype()), dqkv(qkv, dtype());
    const Buffer lse(Value{{s.B, s.H * s.T}, std::vector<double>(N * s.H)}, accumulator_of(dtype()));
    const std::int64_t bytes = attention_workspace_bytes(s, dtype(), Phase::backward, 2);
    const Buffer scratch(bytes);
    const Tensor workspace(scratch.data(), DType::u8, {bytes});
    attention_forward(s, dropout, bqkv.tensor(), c.inputs.starts.data(), y.tensor(), lse.tensor(), workspace);
    attention_backward(s, dropout, bqkv.tensor(), c.inputs.starts.data(), y.tensor(), lse.tensor(), bdy.tensor(),
                       dqkv.tensor(), workspace);
    expect_near(y.read(), expected.value, "y");
    expect_near(dqkv.read(), expected.gradients[0], "dqkv");
  });
}

TEST_P(Layers, Mlp) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), C = c.config.hidden_size, F = c.config.intermediate_size;
    const MlpKind kind{c.config.activation, random_.below(2) == 0};
    const std::int64_t width = kind.up_width(F);
    const Value x = normal({N, C}), up = normal({width, C}, 0.5), down = normal({C, F}, 0.5), dy = normal({N, C});
    const Derivative expected = mlp(kind, x, up, down, dy);
    const Buffer bx(x, dtype()), bdy(dy, dtype()), dx(x, dtype()), wide(normal({N, width}), dtype());
    const Buffer weights(up, dtype()), weights_down(down, dtype());
    const Buffer activated(normal({N, F}), dtype()), dwide(normal({N, width}), dtype());
    const Gradient y(expected.value, dtype(), add, random_);
    const Gradient dup(expected.gradients[1], dtype(), add, random_);
    const Gradient ddown(expected.gradients[2], dtype(), add, random_);
    const MlpWeights w{{weights.tensor(), {}}, {weights_down.tensor(), {}}};
    mlp_forward(kind, bx.tensor(), w, wide.tensor(), activated.tensor(), y.tensor(), add ? y.tensor() : Tensor());
    mlp_backward(kind, w, wide.tensor(), bdy.tensor(), activated.tensor(), dwide.tensor(), dx.tensor(),
                 {ddown.place(), {}});
    linear_backward_weight(dwide.tensor(), bx.tensor(), dup.place());
    expect_near(y, expected.value, "y");
    expect_near(dx.read(), expected.gradients[0], "dx");
    expect_near(dup, expected.gradients[1], "dup");
    expect_near(ddown, expected.gradients[2], "ddown");
  });
}

TEST_P(Layers, Embedding) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), C = c.config.hidden_size, V = c.config.vocabulary;
    const Value w = normal({V, C}), dy = normal({N, C});
    const Derivative expected = embedding(c.inputs.ids, w, dy);
    const Buffer bw(w, dtype()), y(dy, dtype()), bdy(dy, dtype());
    const Gradient dw(expected.gradients[0], matrix_gradient_dtype(), add, random_);
    const std::int64_t bytes = embedding_workspace_bytes(N, V, C);
    const Buffer workspace(bytes);
    embedding_forward(c.inputs.ids.data(), bw.tensor(), y.tensor());
    embedding_backward(c.inputs.ids.data(), bdy.tensor(), dw.place(), Tensor(workspace.data(), DType::u8, {bytes}));
    EXPECT_EQ(y.read().data, expected.value.data);
    expect_near(dw, expected.gradients[0], "dw");
  });
}

TEST_P(Layers, LossHead) {
  for_each_case([&](const Case& c, bool add) {
    const std::int64_t N = c.inputs.shape.tokens(), C = c.config.hidden_size, V = c.config.vocabulary;
    const DType gradient = matrix_gradient_dtype();
    const LossHeadShape shape{N, C, V, V + 3, c.config.loss_chunk_tokens, c.config.logit_soft_cap, gradient != dtype()};
    const Value hidden = normal({N, C});
    Value weight = normal({V + 3, C}, 0.5);
    std::fill(weight.data.end() - 3 * C, weight.data.end(), 0.0);
    const Derivative expected = loss_head(hidden, weight, V, c.inputs.labels, shape.soft_cap, 0.25);
    const Buffer bhidden(hidden, dtype()), bweight(weight, dtype()), dhidden(hidden, dtype());
    const Gradient dweight(expected.gradients[1], gradient, add, random_);
    MemoryLayout size;
    place_loss_head(size, shape, dtype());
    const Buffer scratch(size.size());
    MemoryLayout memory(scratch.data());
    const LossHeadWorkspace workspace = place_loss_head(memory, shape, dtype());
    double evaluated = 1, trained = 2;  // both are overwritten
    loss_head_forward(shape, bhidden.tensor(), bweight.tensor(), c.inputs.labels.data(), &evaluated, workspace);
    loss_head_backward(shape, bhidden.tensor(), bweight.tensor(), c.inputs.labels.data(), 0.25, dhidden.tensor(),
                       dweight.place(), &trained, workspace);
    EXPECT_EQ(evaluated, trained);
    expect_near(Value{{}, {trained}}, expected.value, "loss");
    expect_near(dhidden.read(), expected.gradients[0], "dhidden");
    expect_near(dweight, expected.gradients[1], "dweight");
  });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Layers, kDtypes, dtype_name);

}  // namespace
}  // namespace trireme::parity
