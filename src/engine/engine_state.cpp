// What the engine does between steps: evaluation, its state in and out, and what follows from gradients that are not
// finite.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "chain/forward.h"
#include "comm/collectives.h"
#include "engine/engine.h"

namespace trireme::engine {

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
  std::memcpy(own, state_.weights(group), static_cast<std::size_t>(bytes));
  return own;
}

LossResult Engine::evaluate(const Batch* batch) {
  TRIREME_CHECK(!is_pending_, "an evaluation was asked for while a step is pending");
  Gathered gathered{arena_.at(forward_bytes(chain_, options_.micro_batch)), {}};
  gathered.groups.resize(plan_.groups.size(), nullptr);
  const auto parameters_of = [&](std::size_t unit) { return gather_unit(unit, gathered); };
  const std::size_t head = chain_.units.size() - 1;
  if (batch == nullptr) {
    for (std::size_t unit = 0; unit <= head; ++unit) parameters_of(unit);
    return {};
  }
  const HeadInput input = forward_to_head(chain_, *batch, parameters_of, arena_.at(0));
  return chain_.units[head]->loss({*batch, parameters_of(head), input.boundary, {}, {}, 0.0, input.workspace});
}

std::string Engine::place_of_step() const {
  return "step " + std::to_string(step_options_.run_step > 0 ? step_options_.run_step : step_options_.step);
}

// On all ranks alike: they have the same report.
void Engine::on_non_finite(std::int64_t logical_tensor, int rank) {
  NonFinite found{.rank = rank};
  if (rank >= 0) found.tensor = logical_name(chain_, logical_tensor);
  for (std::size_t m = 0; m < report_.micro_batch_losses.size() && found.micro_batch < 0; ++m) {
    if (std::isfinite(report_.micro_batch_losses[m])) continue;
    found.micro_batch = static_cast<int>(m);
    found.micro_batch_rank = found.micro_batch % options_.split.num_data_ranks;
  }
  if (!options_.skips_non_finite) {
    throw Error(
        1302, place_of_step(),
        to_string(found) + (plan_.steps_early() ? "; some weights have been updated with it: go on from a checkpoint"
                                                : "; weights and optimizer state are those of the step before"),
        "a lower learning_rate, a longer warmup_steps or gradient_clipping helps most often; "
        "training.nonfinite_gradients=skip leaves such steps out");
  }
  report_.non_finite = std::move(found);
}

void Engine::move_loss_scale() {
  const auto next = optim::next_loss_scale(options_.loss_scale, loss_scale_, report_.non_finite.has_value());
  if (!next) {
    std::ostringstream numbers;
    numbers << loss_scale_.scale << " already; the loss was " << report_.loss;
    throw Error(Error::kNoProgress, place_of_step(),
                to_string(*report_.non_finite) + "; the loss scale is at its minimum of " + numbers.str(),
                "mixed_precision=bf16 needs no loss scale; or lower min_loss_scale or learning_rate");
  }
  loss_scale_ = *next;
}

void Engine::refresh_weights() {
  for (int group = 0; group < static_cast<int>(plan_.groups.size()); ++group) {
    state_.cast_weights(group);
    const schedule::GroupSpec& spec = plan_.chain.groups[group];
    if (spec.updates_slice_of_whole()) gather_weights(group, state_.updated_weights(group), state_.weights(group));
  }
}

std::int64_t Engine::allocated_bytes(schedule::Tier tier) const {
  const Memory& arena = tier == schedule::Tier::host ? host_arena_ : arena_;
  return state_.allocated_bytes(tier) + arena.bytes();
}

std::span<const float> Engine::gather_state(StateKind kind, int group, std::vector<float>& storage) {
  TRIREME_CHECK(!is_pending_, "the state was asked for while a step is pending");
  const auto held = static_cast<std::size_t>(state_.held(kind, group).size());
  const auto numel = static_cast<std::size_t>(plan_.groups[group].numel);
  std::vector<float> copy;
  const std::span<const float> mine = state_.read(kind, group, held == numel ? storage : copy);
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
