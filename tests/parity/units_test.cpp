// The gradients of each unit and of the whole model equal LibTorch's autograd on the plain formula, at the CPU level in
// use. Saved bytes and workspaces are exactly as large as describe() says, poisoned before and guarded behind.
#include "parity/fixture.h"

namespace trireme::parity {
namespace {

class Units : public Parity {};

std::vector<Buffer> buffers_of(const std::vector<Value>& values, DType dtype) {
  std::vector<Buffer> buffers;
  buffers.reserve(values.size());
  for (const Value& value : values) buffers.emplace_back(value, dtype);
  return buffers;
}

std::vector<Tensor> tensors_of(const std::vector<Buffer>& buffers) {
  std::vector<Tensor> tensors;
  for (const Buffer& buffer : buffers) tensors.push_back(buffer.tensor());
  return tensors;
}

struct Gradients {
  std::vector<Gradient> all;
  std::vector<GradientPlace> places;
  // first: where the parameters' gradients begin among the expected.
  Gradients(const Derivative& expected, std::size_t first, DType dtype, bool add, Random& random) {
    for (std::size_t i = first; i < expected.gradients.size(); ++i) {
      all.emplace_back(expected.gradients[i], dtype, add, random);
    }
    for (const Gradient& gradient : all) places.push_back(gradient.place());
  }
};

// A norm behind a branch, or of queries and keys, brings what was rounded before it back to full size.
int roundings(DType dtype, const LlamaConfig& config) {
  const bool extra_norms = config.post_norms || config.query_key_norms;
  return dtype != DType::f64 && extra_norms ? 5 : 1;
}

// The gradients of queries and keys that were normed to one size are small differences of large numbers.
bool is_small_difference(const LlamaConfig& config, const std::string& parameter) {
  const bool named = parameter.ends_with("qkv") || parameter.ends_with("qkv_bias") ||
                     parameter.ends_with("query_norm") || parameter.ends_with("key_norm") ||
                     parameter.ends_with("input_norm") || parameter.ends_with("input_norm_bias");
  return config.query_key_norms && named;
}
// fp32 keeps few of their digits, the 8 bits of bf16 none.
bool bf16_cannot_tell(DType dtype, const LlamaConfig& config, const std::string& parameter) {
  return dtype == DType::bf16 && is_small_difference(config, parameter);
}
int cancellation(DType dtype, const LlamaConfig& config, const std::string& parameter) {
  return dtype == DType::f32 && is_small_difference(config, parameter) ? 20 : 1;
}

TEST_P(Units, Block) {
  for_each_case([&](const Case& c, bool add) {
    const int units = roundings(dtype(), c.config);
    const Chain chain = make_llama(c.config, dtype());
    const Unit& unit = *chain.units[1];
    const Batch batch = c.inputs.batch();
    const std::vector<Value> parameters = random_parameters(chain.parameters, unit.parameters(), dtype(), random_);
    const Value x = normal({batch.shape.tokens(), c.config.hidden_size}), dy = normal(x.sizes);
    const auto reference = [&](const std::vector<Value>& of) { return block(c.config, c.inputs, x, of, dy); };
    const Derivative expected = reference(parameters);
    const std::vector<double> costs = cost_of_rounding(parameters, expected, reference);

    const std::vector<Buffer> weights = buffers_of(parameters, dtype());
    const std::vector<Tensor> p = tensors_of(weights);
    const Buffer input(x, dtype()), output(dy, dtype()), again(dy, dtype()), grad_output(dy, dtype()),
        grad_input(x, dtype());
    const UnitCost cost = unit.describe(Phase::forward, batch.shape);
    const Buffer saved(cost.saved_bytes), workspace(cost.workspace_bytes);
    const Buffer workspace_and_saved(cost.workspace_bytes + cost.saved_bytes);
    const Buffer workspace_backward(unit.describe(Phase::backward, batch.shape).workspace_bytes);
    const Tensor in[] = {input.tensor()}, out[] = {output.tensor()}, out_again[] = {again.tensor()};
    const Tensor dout[] = {grad_output.tensor()}, din[] = {grad_input.tensor()};
    unit.forward({batch, p, in, out_again, nullptr, workspace_and_saved.data()});
    unit.forward({batch, p, in, out, saved.data(), workspace.data()});
    const Gradients gradients(expected, 1, dtype(), add, random_);
    unit.backward({batch, p, in, dout, din, gradients.places, saved.data(), workspace_backward.data()});

    expect_near(output.read(), expected.value, "output", units);
    EXPECT_EQ(again.read().data, output.read().data) << "evaluation computes something else than training";
    expect_near(grad_input.read(), expected.gradients[0], "input", units, costs[0]);
    for (std::size_t i = 0; i < gradients.all.size(); ++i) {
      const std::string& name = chain.parameters[unit.parameters()[i]].name;
      if (bf16_cannot_tell(dtype(), c.config, name)) continue;
      expect_near(gradients.all[i], expected.gradients[i + 1], name, units * cancellation(dtype(), c.config, name),
                  costs[i + 1]);
    }
  });
}

TEST_P(Units, Head) {
  for_each_case([&](const Case& c, bool add) {
    const Chain chain = make_llama(c.config, dtype());
    const Unit& unit = *chain.units.back();
    const Batch batch = c.inputs.batch();
    const std::vector<Value> parameters = random_parameters(chain.parameters, unit.parameters(), dtype(), random_);
    const Value x = normal({batch.shape.tokens(), c.config.hidden_size});
    const double scale = 0.125;
    const auto reference = [&](const std::vector<Value>& of) { return head(c.config, c.inputs, x, of, scale); };
    const Derivative expected = reference(parameters);
    const std::vector<double> costs = cost_of_rounding(parameters, expected, reference);

    const std::vector<Buffer> weights = buffers_of(parameters, dtype());
    const std::vector<Tensor> p = tensors_of(weights);
    const Buffer input(x, dtype()), grad_input(x, dtype());
    const Buffer workspace(unit.describe(Phase::backward, batch.shape).workspace_bytes);
    const Tensor in[] = {input.tensor()}, din[] = {grad_input.tensor()};
    const LossResult evaluated = loss_of(unit, {batch, p, in, {}, {}, scale, workspace.data()});
    const Gradients gradients(expected, 1, dtype(), add, random_);
    const LossResult trained = loss_of(unit, {batch, p, in, din, gradients.places, scale, workspace.data()});

    EXPECT_EQ(evaluated.sum, trained.sum);
    EXPECT_EQ(evaluated.weight, trained.weight);
    EXPECT_EQ(trained.weight,
              std::count_if(c.inputs.labels.begin(), c.inputs.labels.end(), [](int l) { return l >= 0; }));
    expect_near(Value{{}, {trained.sum}}, expected.value, "loss");
    expect_near(grad_input.read(), expected.gradients[0], "input", 1, costs[0]);
    expect_near(gradients.all[0], expected.gradients[1], "norm", 1, costs[1]);
    expect_near(gradients.all[1], expected.gradients[2], "matrix", 1, costs[2]);
  });
}

// Runs a chain as the engine does for one micro-batch on one rank: gradients of each unit into their places, the second
// contribution to a tied one added to the first's.
struct ModelRun {
  std::vector<std::vector<Tensor>> parameters;  // of each unit
  std::vector<Buffer> hidden, saved;
  std::vector<Tensor> boundaries;

  ModelRun(const Chain& chain, const std::vector<Buffer>& weights, const Batch& batch, DType dtype) {
    for (const auto& unit : chain.units) {
      std::vector<Tensor> own;
      for (const int index : unit->parameters()) own.push_back(weights[index].tensor());
      parameters.push_back(std::move(own));
    }
    for (std::size_t u = 0; u + 1 < chain.units.size(); ++u) forward(*chain.units[u], u, batch, dtype);
  }
  void forward(const Unit& unit, std::size_t u, const Batch& batch, DType dtype) {
    const UnitCost cost = unit.describe(Phase::forward, batch.shape);
    const std::vector<std::int64_t> sizes = unit.output(batch.shape)[0].sizes;
    hidden.emplace_back(Value{sizes, std::vector<double>(sizes[0] * sizes[1] * sizes[2])}, dtype);
    boundaries.push_back(hidden.back().tensor());
    saved.emplace_back(cost.saved_bytes);
    const Buffer workspace(cost.workspace_bytes);
    const std::span<const Tensor> input = u == 0 ? std::span<const Tensor>{} : std::span(&boundaries[u - 1], 1);
    unit.forward({batch, parameters[u], input, std::span(&boundaries[u], 1), saved.back().data(), workspace.data()});
  }
};

std::vector<GradientPlace> places_of(const Unit& unit, const std::vector<Gradient>& gradients,
                                     const std::vector<bool>& frozen, std::vector<bool>& used) {
  std::vector<GradientPlace> places;
  for (const int index : unit.parameters()) {
    if (!frozen.empty() && frozen[index]) {
      places.emplace_back();
      continue;
    }
    GradientPlace place = gradients[index].place();
    place.add = place.add || used[index];
    used[index] = true;
    places.push_back(place);
  }
  return places;
}

// The first unit that has something to train; the head where no other has.
std::size_t lowest_trained(const Chain& chain, const std::vector<bool>& frozen) {
  const auto trains = [&](const auto& unit) {
    return std::any_of(unit->parameters().begin(), unit->parameters().end(),
                       [&](int index) { return frozen.empty() || !frozen[index]; });
  };
  return std::find_if(chain.units.begin(), chain.units.end() - 1, trains) - chain.units.begin();
}

LossResult run_backward(const Chain& chain, ModelRun& run, const Batch& batch, double scale,
                        const std::vector<Gradient>& gradients, DType dtype, const std::vector<bool>& frozen = {}) {
  std::vector<bool> used(chain.parameters.size());
  const std::size_t last = chain.units.size() - 1;
  LossResult result;
  std::vector<Buffer> grads;
  for (std::size_t u = 0; u < last; ++u) grads.emplace_back(run.hidden[u].read(), dtype);
  for (std::size_t i = 0; i <= last - lowest_trained(chain, frozen); ++i) {
    const std::size_t u = last - i;
    const Unit& unit = *chain.units[u];
    const Buffer workspace(unit.describe(Phase::backward, batch.shape).workspace_bytes);
    const std::vector<GradientPlace> places = places_of(unit, gradients, frozen, used);
    const auto one = [](const Tensor& tensor) { return std::vector<Tensor>{tensor}; };
    const std::vector<Tensor> input = u == 0 ? std::vector<Tensor>{} : one(run.boundaries[u - 1]);
    const std::vector<Tensor> grad_input = u == 0 ? std::vector<Tensor>{} : one(grads[u - 1].tensor());
    if (u == last) {
      result = loss_of(unit, {batch, run.parameters[u], input, grad_input, places, scale, workspace.data()});
    } else {
      unit.backward({batch, run.parameters[u], input, one(grads[u].tensor()), grad_input, places, run.saved[u].data(),
                     workspace.data()});
    }
  }
  return result;
}

constexpr int kUnitsThereAndBack = 6;  // embedding, two blocks and head, and the two blocks back

// In bf16 a few narrow rows that went through a whole model: nothing averages the rounding out.
bool mostly_rounding(DType dtype, const Case& c) {
  return dtype == DType::bf16 && (c.inputs.shape.tokens() < 33 || c.config.hidden_size < 21);
}

TEST_P(Units, WholeModel) {
  for_each_case([&](const Case& c, bool add) {
    if (mostly_rounding(dtype(), c)) return;
    const Chain chain = make_llama(c.config, dtype());
    const Batch batch = c.inputs.batch();
    std::vector<int> all(chain.parameters.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::vector<Value> parameters = random_parameters(chain.parameters, all, dtype(), random_);
    const auto reference = [&](const std::vector<Value>& of) { return llama(c.config, c.inputs, of, 0.5); };
    const Derivative expected = reference(parameters);
    const std::vector<double> costs = cost_of_rounding(parameters, expected, reference);
    const int units = kUnitsThereAndBack * roundings(dtype(), c.config);

    const std::vector<Buffer> weights = buffers_of(parameters, dtype());
    ModelRun run(chain, weights, batch, dtype());
    const Gradients gradients(expected, 0, dtype(), add, random_);
    const LossResult result = run_backward(chain, run, batch, 0.5, gradients.all, dtype());

    expect_near(Value{{}, {result.sum}}, expected.value, "loss");
    for (std::size_t i = 0; i < gradients.all.size(); ++i) {
      const std::string& name = chain.parameters[i].name;
      if (bf16_cannot_tell(dtype(), c.config, name)) continue;
      expect_near(gradients.all[i], expected.gradients[i], name, units * cancellation(dtype(), c.config, name),
                  costs[i]);
    }
  });
}

// GPT-2, with every kind of dropout: the backward draws the masks that the forward drew.
TEST_P(Units, WholeGpt2) {
  for_each_case([&](Case c, bool add) {
    if (mostly_rounding(dtype(), c)) return;
    const bool drops = random_.below(3) > 0;
    Gpt2Config config{.vocabulary = c.config.vocabulary,
                      .hidden_size = c.config.num_heads * std::max<std::int64_t>(c.config.head_dim, 16),
                      .intermediate_size = c.config.intermediate_size,
                      .num_layers = c.config.num_layers,
                      .num_heads = c.config.num_heads,
                      .max_positions = c.config.max_positions,
                      .activation = c.config.activation,
                      .scale_attention = random_.below(2) == 0,
                      .scale_attention_by_layer = random_.below(2) == 0,
                      .loss_chunk_tokens = c.config.loss_chunk_tokens};
    if (drops) config.embedding_dropout = 0.1, config.attention_dropout = 0.2, config.residual_dropout = 0.3;
    for (std::int64_t b = 0; drops && b < c.inputs.shape.batch; ++b) {
      c.inputs.dropout_keys.push_back(dropout_key(seed_, 3, static_cast<std::uint64_t>(b)));
    }
    const Chain chain = make_gpt2(config, dtype());
    const Batch batch = c.inputs.batch();
    std::vector<int> all(chain.parameters.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::vector<Value> parameters = random_parameters(chain.parameters, all, dtype(), random_);
    const auto reference = [&](const std::vector<Value>& of) { return gpt2(config, c.inputs, of, 0.5); };
    const Derivative expected = reference(parameters);
    const std::vector<double> costs = cost_of_rounding(parameters, expected, reference);

    const std::vector<Buffer> weights = buffers_of(parameters, dtype());
    ModelRun run(chain, weights, batch, dtype());
    const Gradients gradients(expected, 0, dtype(), add, random_);
    const LossResult result = run_backward(chain, run, batch, 0.5, gradients.all, dtype());

    expect_near(Value{{}, {result.sum}}, expected.value, "loss");
    for (std::size_t i = 0; i < gradients.all.size(); ++i) {
      expect_near(gradients.all[i], expected.gradients[i], chain.parameters[i].name, kUnitsThereAndBack, costs[i]);
    }
  });
}

// Frozen parameters, and units below the first that is trained, change no gradient of the rest: torch's with
// requires_grad=False.
TEST_P(Units, WholeModelsWithFrozenParameters) {
  const auto expect_rest = [&](const Case& c, const Chain& chain, const std::vector<Value>& parameters,
                               const Derivative& expected, const std::vector<double>& costs,
                               const std::vector<bool>& frozen, bool add, int units) {
    const std::vector<Buffer> weights = buffers_of(parameters, dtype());
    ModelRun run(chain, weights, c.inputs.batch(), dtype());
    const Gradients gradients(expected, 0, dtype(), add, random_);
    const LossResult result = run_backward(chain, run, c.inputs.batch(), 0.5, gradients.all, dtype(), frozen);
    expect_near(Value{{}, {result.sum}}, expected.value, "loss");
    for (std::size_t i = 0; i < gradients.all.size(); ++i) {
      const std::string& name = chain.parameters[i].name;
      if (frozen[i] || bf16_cannot_tell(dtype(), c.config, name)) continue;
      expect_near(gradients.all[i], expected.gradients[i], name, units * cancellation(dtype(), c.config, name),
                  costs[i]);
    }
  };
  for_each_case([&](Case c, bool add) {
    if (mostly_rounding(dtype(), c)) return;
    const Gpt2Config small{.vocabulary = c.config.vocabulary,
                           .hidden_size = c.config.num_heads * 16,
                           .intermediate_size = c.config.intermediate_size,
                           .num_layers = c.config.num_layers,
                           .num_heads = c.config.num_heads,
                           .max_positions = c.config.max_positions,
                           .loss_chunk_tokens = c.config.loss_chunk_tokens};
    for (const bool is_gpt2 : {false, true}) {
      const Chain chain = is_gpt2 ? make_gpt2(small, dtype()) : make_llama(c.config, dtype());
      std::vector<int> all(chain.parameters.size());
      std::vector<bool> frozen(chain.parameters.size());
      // Everything before some place, and a quarter of what follows; the last one is trained.
      const std::int64_t first = random_.below(std::ssize(all));
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<int>(i);
        const bool before = static_cast<std::int64_t>(i) < first;
        frozen[i] = i + 1 < all.size() && (before || random_.below(4) == 0);
      }
      const std::vector<Value> parameters = random_parameters(chain.parameters, all, dtype(), random_);
      const auto reference = [&](const std::vector<Value>& of) {
        return is_gpt2 ? gpt2(small, c.inputs, of, 0.5, frozen) : llama(c.config, c.inputs, of, 0.5, frozen);
      };
      const Derivative expected = reference(parameters);
      const std::vector<double> costs = cost_of_rounding(parameters, expected, reference);
      if (is_gpt2) c.config = {};
      expect_rest(c, chain, parameters, expected, costs, frozen, add,
                  kUnitsThereAndBack * roundings(dtype(), c.config));
    }
  });
}

TEST_P(Units, Logits) {
  for_each_case([&](const Case& c, bool) {
    if (mostly_rounding(dtype(), c)) return;
    const Chain chain = make_llama(c.config, dtype());
    const Batch batch = c.inputs.batch();
    std::vector<int> all(chain.parameters.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::vector<Value> parameters = random_parameters(chain.parameters, all, dtype(), random_);
    std::vector<std::int64_t> positions;
    for (std::int64_t b = 0; b < batch.shape.batch; ++b) positions.push_back(random_.below(batch.shape.sequence));
    const Value expected = logits(c.config, c.inputs, parameters, positions);

    const std::vector<Buffer> weights = buffers_of(parameters, dtype());
    const ModelRun run(chain, weights, batch, dtype());
    const Unit& head = *chain.units.back();
    const Buffer workspace(head.describe(Phase::forward, batch.shape).workspace_bytes);
    const Buffer out(expected, DType::f32);
    head.logits({batch, run.parameters.back(), std::span(&run.boundaries.back(), 1), {}, nullptr, workspace.data()},
                positions, out.tensor().as<float>());
    const double bound_of_logits = dtype() == DType::f64 ? 1e-6 : bound() * kUnitsThereAndBack;  // they are floats
    EXPECT_LE(relative_difference(out.read(), expected), bound_of_logits);
  });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Units, kDtypes, dtype_name);

}  // namespace
}  // namespace trireme::parity
