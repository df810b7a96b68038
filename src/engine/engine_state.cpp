// What the engine does between steps: evaluation, and its state in and out, also that behind an earlier step.
#include <algorithm>

#include "chain/forward.h"
#include "comm/collectives.h"
#include "engine/on_device.h"
#include "kernels/device.h"

namespace trireme::engine {

// A batch that cannot be computed ends the step on all ranks before it begins.
void Engine::check(std::span<const Batch> batches) {
  try {
    for (const Batch& batch : batches) {
      if (batch.shape.batch == 0) continue;
      for (const auto& unit : chain_.units) unit->check(batch);
    }
  } catch (...) {
    free_peers();
    throw;
  }
}

// The unit's parameters, whole.
std::vector<Tensor> Engine::gather_unit(std::size_t unit, Gathered& gathered) {
  const std::vector<int>& reads = plan_.chain.units[unit].reads;
  const auto is_elsewhere = [&](int group) { return plan_.chain.groups[group].is_gathered(); };
  std::vector<std::byte*>& whole = gathered.groups;
  const auto is_there = [&](int group) { return !is_elsewhere(group) || whole[group] != nullptr; };
  if (!std::all_of(reads.begin(), reads.end(), is_there)) {
    std::fill(whole.begin(), whole.end(), nullptr);
    std::byte* next = gathered.memory;
    for (const int group : reads) {
      if (!is_elsewhere(group)) continue;
      const schedule::GroupSpec& spec = plan_.chain.groups[group];
      const std::byte* own = spec.weights_on_host ? fetch_to(next, group) : state_.weights(group);
      if (spec.shards_parameters) gather_weights(group, own, next);
      whole[group] = next;
      next += plan_.groups[group].numel * size_of(chain_.compute_dtype);  // a multiple of 256 elements
    }
  }
  std::vector<Tensor> views;
  for (const int parameter : chain_.units[unit]->parameters()) {
    const int group = state_.place(parameter).group;
    views.push_back(state_.view(parameter, is_elsewhere(group) ? whole[group] : state_.weights(group)));
  }
  return views;
}

// What the rank keeps of the group on the host, to its place in the whole.
const std::byte* Engine::fetch_to(std::byte* whole, int group) const {
  const bool sharded = plan_.chain.groups[group].shards_parameters;
  const std::int64_t bytes =
      (sharded ? plan_.groups[group].slice_numel() : plan_.groups[group].numel) * size_of(chain_.compute_dtype);
  std::byte* own = whole + (sharded ? plan_.options.slice_of(comm_.rank()) * bytes : 0);
  kernels::copy(own, state_.weights(group), bytes);
  return own;
}

LossResult Engine::evaluate(const Batch* batch) {
  TRIREME_CHECK(!is_pending_, "an evaluation was asked for while a step is pending");
  if (device_ != nullptr) return evaluate_on_device(batch);
  LossResult result;
  if (batch == nullptr) {
    gather_for_others();
    return result;
  }
  evaluate(*batch, &result.sum);
  result.weight = count_labels(*batch);
  return result;
}

// The part in an evaluation of a rank that has no batch.
void Engine::gather_for_others() {
  Gathered gathered = nothing_gathered();
  for (std::size_t unit = 0; unit < chain_.units.size(); ++unit) gather_unit(unit, gathered);
}

// sum: where the units run, as batch.
void Engine::evaluate(const Batch& batch, double* sum) {
  Gathered gathered = nothing_gathered();
  const auto parameters_of = [&](std::size_t unit) { return gather_unit(unit, gathered); };
  const std::size_t head = chain_.units.size() - 1;
  const HeadInput input = forward_to_head(chain_, batch, parameters_of, arena_.at(0));
  chain_.units[head]->loss({batch, parameters_of(head), input.boundary, {}, {}, 0.0, input.workspace, sum});
}

Engine::Gathered Engine::nothing_gathered() const {
  return {arena_.at(forward_bytes(chain_, options_.micro_batch)), std::vector<std::byte*>(plan_.groups.size())};
}

void Engine::refresh_weights() {
  std::optional<kernels::OnStream> on;
  if (device_ != nullptr) on.emplace(device_->executor->stream(schedule::Lane::compute));
  for (int group = 0; group < static_cast<int>(plan_.groups.size()); ++group) {
    state_.cast_weights(group);
    const schedule::GroupSpec& spec = plan_.chain.groups[group];
    if (spec.updates_slice_of_whole()) gather_weights(group, state_.updated_weights(group), state_.weights(group));
  }
  wait_for_device();  // the next pass begins on any lane
}

std::int64_t Engine::allocated_bytes(schedule::Tier tier) const {
  const Memory& arena = tier == schedule::Tier::host ? host_arena_ : arena_;
  return state_.memory(tier).bytes() + arena.bytes();
}

std::span<const float> Engine::gather_state(StateKind kind, int group, std::vector<float>& storage) {
  TRIREME_CHECK(!is_pending_, "the state was asked for while a step is pending");
  wait_for_device();
  const auto held = static_cast<std::size_t>(state_.held(kind, group).size());
  const auto numel = static_cast<std::size_t>(plan_.groups[group].numel);
  std::vector<float> copy;
  return gather_to_first(state_.read(kind, group, held == numel ? storage : copy), group, storage);
}

// Whole groups are there already. Where each rank has a slice, they come in order.
std::span<const float> Engine::gather_to_first(std::span<const float> mine, int group, std::vector<float>& storage) {
  const std::size_t held = mine.size(), numel = static_cast<std::size_t>(plan_.groups[group].numel);
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

std::optional<Snapshot> Engine::snapshot() {
  if (!snapshot_step_) return std::nullopt;
  wait_for_device();  // a step comes back before its updates and their copies have ended
  return Snapshot(state_, *snapshot_step_, snapshot_readers_);
}

std::span<const float> Engine::gather_state(const Snapshot& snapshot, StateKind kind, int group,
                                            std::vector<float>& storage) {
  wait_for_device();
  const bool is_whole = snapshot.held(kind, group).size() == plan_.groups[group].numel;
  std::vector<float> copy;
  return gather_to_first(snapshot.read(kind, group, is_whole ? storage : copy), group, storage);
}

void Engine::refuse_overwriting() const {
  if (snapshot_readers_.load(std::memory_order_acquire) == 0) return;
  throw Error(1304, place_of_step(),
              "asks for a snapshot while that of step " + std::to_string(snapshot_step_.value_or(0)) + " is being read",
              "ask again when its reader is done; more steps between snapshots give it more time");
}

}  // namespace trireme::engine
