// What the engine does between steps: evaluation, and its state in and out.
#include <algorithm>
#include <cstring>

#include "chain/forward.h"
#include "comm/collectives.h"
#include "engine/engine.h"

namespace trireme::engine {

// The unit's parameters, whole: gathered to `memory` where they are sharded.
std::vector<Tensor> Engine::gather_unit(std::size_t unit, std::byte* memory) {
  std::vector<std::byte*> whole(plan_.groups.size(), nullptr);
  for (const int group : plan_.chain.units[unit].reads) {
    whole[group] = state_.weights(group);
    if (!plan_.chain.groups[group].shards_parameters) continue;
    whole[group] = memory;
    gather_weights(group, memory);
    memory += plan_.groups[group].numel * size_of(chain_.compute_dtype);  // a multiple of 256 elements
  }
  std::vector<Tensor> views;
  for (const int parameter : chain_.units[unit]->parameters()) {
    views.push_back(state_.view(parameter, whole[state_.place(parameter).group]));
  }
  return views;
}

LossResult Engine::evaluate(const Batch* batch) {
  TRIREME_CHECK(!is_pending_, "an evaluation was asked for while a step is pending");
  std::byte* gathered = arena_.at(forward_bytes(chain_, options_.micro_batch));
  const auto parameters_of = [&](std::size_t unit) { return gather_unit(unit, gathered); };
  const std::size_t head = chain_.units.size() - 1;
  if (batch == nullptr) {
    for (std::size_t unit = 0; unit <= head; ++unit) parameters_of(unit);
    return {};
  }
  const HeadInput input = forward_to_head(chain_, *batch, parameters_of, arena_.at(0));
  return chain_.units[head]->loss({*batch, parameters_of(head), input.boundary, {}, {}, 0.0, input.workspace});
}

void Engine::refresh_weights() {
  state_.cast_weights();
  for (int group = 0; group < static_cast<int>(plan_.groups.size()); ++group) {
    const schedule::GroupSpec& spec = plan_.chain.groups[group];
    if (spec.shards_optimizer && !spec.shards_parameters) gather_weights(group, state_.weights(group));
  }
}

std::span<const float> Engine::gather_state(StateKind kind, int group, std::vector<float>& storage) {
  TRIREME_CHECK(!is_pending_, "the state was asked for while a step is pending");
  const auto held = static_cast<std::size_t>(state_.held(kind, group).size());
  const auto numel = static_cast<std::size_t>(plan_.groups[group].numel);
  const std::span<const float> mine(state_.data(kind, group), held);
  if (held == 0 || held == numel) return comm_.rank() == 0 ? mine : std::span<const float>();
  if (plan_.options.replica_of(comm_.rank()) > 0) return {};
  comm::Communicator& ranks = ranks_of(schedule::Scope::shards);
  if (ranks.rank() > 0) {
    ranks.send(std::as_bytes(mine), 0)->wait();
    return {};
  }
  storage.resize(numel);
  std::copy(mine.begin(), mine.end(), storage.begin());
  for (int rank = 1; rank < ranks.world_size(); ++rank) {
    const std::span<float> slice = std::span(storage).subspan(static_cast<std::size_t>(rank) * held, held);
    ranks.receive(std::as_writable_bytes(slice), rank)->wait();
  }
  return storage;
}

}  // namespace trireme::engine
