// What happens to a storage group: gathers, copies between tiers, its gradient's sum, its update.
#include "schedule/builder.h"
#include "schedule/rank_classes.h"

namespace trireme::schedule {

void Builder::add_persistent_buffers() {
  for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) {
    const GroupSpec& spec = chain_.groups[group];
    const auto add = [&](BufferKind kind, std::int64_t element_bytes, bool sharded, bool on_host) {
      const std::int64_t numel = sharded ? spec.numel / options_.shard_ranks() : spec.numel;
      return add_buffer(kind, -1, group, -1, numel * element_bytes, on_host ? Tier::host : Tier::device);
    };
    const bool slices = spec.shards_parameters;
    weights_.push_back(add(slices ? BufferKind::weight_slice : BufferKind::weights, options_.compute_element_bytes,
                           slices, spec.weights_on_host));
    state_.push_back(spec.trainable
                         ? add(BufferKind::state, options_.state_bytes(spec), spec.shards_optimizer, spec.state_on_host)
                         : -1);
    accumulators_.push_back(
        spec.trainable ? add(BufferKind::accumulator, options_.accumulator_element_bytes, spec.shards_gradients, false)
                       : -1);
    sum_copies_.push_back(
        spec.state_on_host ? add(BufferKind::sum_copy, options_.accumulator_element_bytes, spec.shards_optimizer, true)
                           : -1);
    const bool has_snapshot = spec.trainable && options_.snapshots != Snapshots::none;
    snapshots_.push_back(has_snapshot ? add(BufferKind::snapshot, options_.snapshot_bytes_per_element(), true, true)
                                      : -1);
  }
  token_count_ = add_buffer(BufferKind::token_count, -1, -1, -1, kScalarBytes);
  loss_table_ = add_buffer(BufferKind::losses, -1, -1, -1, kScalarBytes * options_.num_micro_batches);
  gradient_norm_ = add_buffer(BufferKind::gradient_norm, -1, -1, -1, kScalarBytes);
}

// Before a unit's weights are gathered or read.
void Builder::step_for(int visit) {
  for (const int group : chain_.units[visits_[visit].unit].reads) add_step(group);
}

// What this visit and those to come read; then on their way what the next visit gathers, so that both links work.
void Builder::gather_for(int index) {
  if (index == 0) fetch_slices_for(0);
  for (const Ahead& ahead : visits_[index].gathers) {
    if (begins_with_steps(options_.pass)) step_for(ahead.visit);
    for (const int group : ahead.groups) gather(group);
  }
  if (index + 1 < static_cast<int>(visits_.size())) fetch_slices_for(index + 1);
}

void Builder::gather(int group) {
  const GroupSpec& spec = chain_.groups[group];
  gathered_[group] = add_buffer(BufferKind::gathered, -1, group, -1, spec.numel * options_.compute_element_bytes);
  if (spec.shards_parameters) {
    add_gather(group, spec.weights_on_host ? fetched_[group] : weights_[group], gathered_[group]);
  } else {
    add_copy(Op::fetch, group, weights_[group], gathered_[group]);
  }
}

void Builder::fetch_slices_for(int index) {
  for (const Ahead& ahead : visits_[index].gathers) {
    for (const int group : ahead.groups) {
      const GroupSpec& spec = chain_.groups[group];
      if (!spec.weights_on_host || !spec.shards_parameters) continue;
      if (begins_with_steps(options_.pass)) add_step(group);
      fetched_[group] = add_weight_copy(group, Tier::device);
      add_copy(Op::fetch, group, weights_[group], fetched_[group]);
    }
  }
}

void Builder::add_gather(int group, int source, int target) {
  Instruction& gather = emit(Op::gather, Scope::shards);
  gather.group = group;
  gather.participants = options_.shard_ranks();
  gather.element_count = chain_.groups[group].numel;
  gather.reads = {source};
  gather.writes = {target};
}

Instruction& Builder::add_copy(Op op, int group, int source, int target) {
  Instruction& copy = emit(op);
  copy.lane = Lane::copy;
  copy.group = group;
  copy.reads = {source};
  copy.writes = {target};
  return copy;
}

void Builder::release_after(int visit) {
  for (const int group : visits_[visit].releases) {
    Instruction& release = emit(Op::release);
    release.group = group;
    release.writes = {gathered_[group]};
  }
}

void Builder::add_accumulate(int group, int micro_batch, int round) {
  Instruction& accumulate = emit(Op::accumulate);
  accumulate.group = group;
  accumulate.micro_batch = micro_batch;
  accumulate.round = round;
  accumulate.first = round == 0;
  accumulate.reads = {slots_[group]};
  if (!accumulate.first) accumulate.reads.push_back(accumulators_[group]);
  accumulate.writes = {accumulators_[group]};
}

void Builder::add_reduce(ReduceKind kind, Scope scope, int group, int round) {
  const bool scatter = kind == ReduceKind::reduce_scatter;
  Instruction& reduce = emit(Op::reduce, scope);
  reduce.reduce = kind;
  reduce.group = group;
  reduce.round = round;
  reduce.participants = scatter ? working_ranks(options_, options_.replica_of(program_.rank), round) : size_of(scope);
  reduce.first = scatter && round == 0;
  reduce.element_count = chain_.groups[group].numel;
  if (scatter) append(reduce.reads, slots_[group]);
  if (!reduce.first) reduce.reads.push_back(accumulators_[group]);
  reduce.writes = {accumulators_[group]};
}

int Builder::size_of(Scope scope) const {
  return scope == Scope::shards     ? options_.shard_ranks()
         : scope == Scope::replicas ? options_.replicas
                                    : options_.world_size;
}

// The group has its last contribution of the round (on the ranks that work in it).
void Builder::add_reduction(int group, int round, int micro_batch) {
  const GroupSpec& spec = chain_.groups[group];
  const bool last = round == split_.rounds() - 1;
  const bool alone = options_.world_size == 1;
  if (!alone && (options_.reduce_each_micro_batch || spec.shards_gradients)) {
    add_reduce(ReduceKind::reduce_scatter, Scope::shards, group, round);
    if (last && !spec.shards_optimizer) add_reduce(ReduceKind::all_gather, Scope::world, group, round);
  } else {
    if (micro_batch >= 0 && !spec.adds_in_place) add_accumulate(group, micro_batch, round);
    if (!alone && last && spec.shards_optimizer) add_reduce(ReduceKind::scatter_sums, Scope::shards, group, round);
    if (!alone && last && !spec.shards_optimizer) add_reduce(ReduceKind::all_reduce, Scope::world, group, round);
  }
  if (last && options_.replicas > 1) add_reduce(ReduceKind::sum_replicas, Scope::replicas, group, round);
  if (last && spec.state_on_host) offload_sum(group);
}

// As soon as the sum is there, beside the rest of the backward; the update with it where it waits for nothing.
void Builder::offload_sum(int group) {
  add_copy(Op::offload, group, accumulators_[group], sum_copies_[group]);
  if (options_.steps_wait) return;
  update(group);
  add_snapshot(group);
}

// Of what this rank updates: where parameters are sharded too, that is the slice which it keeps, also of frozen ones.
int Builder::add_weight_copy(int group, Tier tier) {
  const GroupSpec& spec = chain_.groups[group];
  const std::int64_t numel =
      spec.numel / (spec.shards_optimizer || spec.shards_parameters ? options_.shard_ranks() : 1);
  return add_buffer(BufferKind::weight_copy, -1, group, -1, numel * options_.compute_element_bytes, tier);
}

void Builder::add_steps() {
  for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) {
    add_step(group);
    add_snapshot(group);
  }
}

// Once a pass.
void Builder::add_step(int group) {
  const GroupSpec& spec = chain_.groups[group];
  if (!spec.trainable || !steps_left_[group]) return;
  steps_left_[group] = false;
  if (options_.steps_wait || !spec.state_on_host) update(group);
  if (spec.updates_slice_of_whole()) add_gather(group, weights_[group], weights_[group]);
}

// On the tier of the state; the weights go where they are kept.
void Builder::update(int group) {
  const GroupSpec& spec = chain_.groups[group];
  const bool on_host = spec.state_on_host, fetches = on_host && !spec.weights_on_host;
  const int target = fetches ? add_weight_copy(group, Tier::host) : weights_[group];
  Instruction& step = emit(Op::step);
  if (on_host) step.lane = Lane::copy;
  step.group = group;
  step.reads = {on_host ? sum_copies_[group] : accumulators_[group]};
  if (options_.steps_wait || !on_host) step.reads.push_back(gradient_norm_);
  append(step.reads, state_[group]);
  const bool leaves_some = spec.updates_slice_of_whole() && !fetches;
  if (leaves_some || !options_.has_own_master(spec)) step.reads.push_back(weights_[group]);
  append(step.writes, state_[group]);
  step.writes.push_back(target);
  if (!fetches) return;
  Instruction& fetch = add_copy(Op::fetch, group, target, weights_[group]);
  if (spec.updates_slice_of_whole()) fetch.reads.push_back(weights_[group]);
}

// Once a pass, behind the update and, where that comes next, the gather: it would have to wait for the copy.
void Builder::add_snapshot(int group) {
  const GroupSpec& spec = chain_.groups[group];
  if (!spec.trainable || !snapshots_left_[group]) return;
  snapshots_left_[group] = false;
  Instruction& snapshot = emit(Op::snapshot);
  snapshot.lane = Lane::copy;
  snapshot.group = group;
  append(snapshot.reads, state_[group]);
  if (!options_.has_own_master(spec)) snapshot.reads.push_back(weights_[group]);
  snapshot.writes = {snapshots_[group]};
}

}  // namespace trireme::schedule
