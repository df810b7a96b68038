#include "engine/chain_description.h"

#include <algorithm>

#include "base/error.h"

namespace trireme::engine {

namespace {

// Of the backward: a frozen matrix has no product for its gradient.
double spared_flops(const Chain& chain, const Unit& unit, const BatchShape& shape) {
  double elements = 0;
  for (const int index : unit.parameters()) {
    const ParameterSpec& parameter = chain.parameters[index];
    if (!parameter.trainable && parameter.rows > 1) elements += static_cast<double>(parameter.numel());
  }
  return 2 * static_cast<double>(shape.tokens()) * elements;
}

schedule::ChainSpec describe_units(const Chain& chain, const std::vector<StorageGroup>& groups,
                                   const EngineOptions& options) {
  const BatchShape& shape = options.micro_batch;
  schedule::ChainSpec spec;
  std::vector<int> group_of(chain.parameters.size(), -1);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    spec.groups.push_back({groups[g].name, groups[g].numel, groups[g].trainable});
    for (const int parameter : groups[g].parameters) group_of[parameter] = static_cast<int>(g);
  }
  int keeping = 0;
  for (std::size_t u = 0; u < chain.units.size(); ++u) {
    const Unit& unit = *chain.units[u];
    const bool head = u + 1 == chain.units.size();
    const UnitCost forward = unit.describe(Phase::forward, shape);
    const UnitCost backward = unit.describe(Phase::backward, shape);
    schedule::UnitSpec out;
    out.name = unit.name();
    for (const int parameter : unit.parameters()) {
      const int group = group_of[parameter];
      if (std::find(out.reads.begin(), out.reads.end(), group) != out.reads.end()) continue;
      out.reads.push_back(group);
      if (groups[group].trainable) out.gradients.push_back(group);
    }
    out.output_bytes = head ? 0 : boundary_bytes(unit.output(shape));
    out.saved_bytes = head ? 0 : forward.saved_bytes;
    out.forward_workspace_bytes = head ? 0 : forward.workspace_bytes;
    out.backward_workspace_bytes = backward.workspace_bytes;
    out.backward_reads_input = backward.reads_input && u > 0;
    out.forward_flops = forward.flops;
    out.backward_flops = std::max(0.0, backward.flops - spared_flops(chain, unit, shape));
    out.forward_attention_flops = forward.attention_flops;
    out.backward_attention_flops = backward.attention_flops;
    out.smallest_side = backward.smallest_side;
    out.forward_bytes_moved = forward.bytes_moved;
    out.backward_bytes_moved = backward.bytes_moved;
    if (out.saved_bytes > 0) out.recompute = options.recompute_every > 0 && keeping++ % options.recompute_every == 0;
    // Between the forward of the last unit before the head and its recompute is only LOSS, beside which it is fetched.
    out.input_on_host = options.offload_inputs && out.recompute && u > 0 && u + 2 < chain.units.size();
    spec.units.push_back(std::move(out));
  }
  return spec;
}

void shard(schedule::ChainSpec& chain, const EngineOptions& options) {
  for (schedule::GroupSpec& group : chain.groups) {
    group.shards_parameters = options.sharding.parameters && group.numel >= options.persistence_threshold;
    group.shards_gradients = options.sharding.gradients && group.trainable;
    group.shards_optimizer = options.sharding.optimizer && group.trainable;
  }
}

// What units read and compute in, or what they add to in place.
DType gradient_dtype(const Chain& chain, const ParameterSpec& parameter) {
  return parameter.float_gradient ? DType::f32 : chain.compute_dtype;
}

void add_in_place(schedule::ChainSpec& spec, const Chain& chain, const std::vector<StorageGroup>& groups,
                  const EngineOptions& options) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto all = [&](auto holds) {
      return std::all_of(groups[g].parameters.begin(), groups[g].parameters.end(),
                         [&](int index) { return holds(chain.parameters[index]); });
    };
    const bool types_agree = all(
        [&](const ParameterSpec& parameter) { return gradient_dtype(chain, parameter) == options.accumulator_dtype; });
    spec.groups[g].adds_in_place = may_add_in_place(options) && groups[g].trainable && types_agree;
    TRIREME_CHECK(spec.groups[g].adds_in_place || !groups[g].trainable ||
                      all([](const ParameterSpec& parameter) { return !parameter.float_gradient; }),
                  groups[g].name + ": fp32 gradients in a slot of the computation's type");
  }
}

// sharded: whether any group is. Where it is not, one rank has all.
void offload(schedule::ChainSpec& chain, const EngineOptions& options, bool sharded) {
  for (schedule::GroupSpec& group : chain.groups) {
    const bool streams = sharded ? group.shards_parameters : group.numel >= options.persistence_threshold;
    group.state_on_host = options.offload_optimizer && group.trainable;
    group.weights_on_host = options.offload_parameters && streams;
  }
}

}  // namespace

bool reduces_each_round(const EngineOptions& options) {
  return options.reduce_each_micro_batch || (options.split.num_data_ranks > 1 && options.split.rounds() == 1);
}

bool may_add_in_place(const EngineOptions& options) {
  return options.adds_in_place && options.reduce_dtype == DType::f32 && !reduces_each_round(options) &&
         !options.sharding.gradients;
}

schedule::ChainSpec describe_chain(const Chain& chain, const std::vector<StorageGroup>& groups,
                                   const EngineOptions& options, bool shards) {
  schedule::ChainSpec spec = describe_units(chain, groups, options);
  if (shards) shard(spec, options);
  add_in_place(spec, chain, groups, options);
  offload(spec, options, shards);
  return spec;
}

}  // namespace trireme::engine
