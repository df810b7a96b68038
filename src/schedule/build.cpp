#include "schedule/build.h"

#include <utility>

#include "layout/mesh.h"
#include "schedule/build_check.h"
#include "schedule/rank_classes.h"
#include "schedule/visits.h"

namespace trireme::schedule {
namespace {

constexpr std::int64_t kScalarBytes = 16;  // (sum, weight), (norm, clip factor), or a count and room

// Appends one rank's buffers and instructions in issue order.
class Builder {
 public:
  Builder(const ChainSpec& chain, const Options& options, int rank)
      : chain_(chain),
        options_(options),
        split_{options.num_micro_batches, options.world_size},
        lowest_trained_(lowest_trained(chain)),
        visits_(list_visits(chain, options, split_.rounds())),
        gathered_(chain.groups.size(), -1),
        fetched_(chain.groups.size(), -1),
        steps_left_(chain.groups.size(), true) {
    program_.pass = options.pass;
    program_.rank = rank;
    program_.world_size = options.world_size;
    add_persistent_buffers();
  }

  Program build() {
    if (options_.pass == Pass::drain) {
      add_steps();
      return std::move(program_);
    }
    Instruction& count = emit(Op::count, Scope::world);
    count.element_count = 1;
    count.participants = options_.world_size;
    count.writes = {token_count_};
    for (int visit = 0; visit < static_cast<int>(visits_.size()); ++visit) add_visit(visit);
    add_norm();
    add_report();
    if (!leaves_steps(options_.pass)) add_steps();
    return std::move(program_);
  }

 private:
  int add_buffer(BufferKind kind, int unit, int group, int micro_batch, std::int64_t bytes, Tier tier = Tier::device) {
    if (bytes == 0) return -1;
    program_.buffers.push_back({kind, unit, group, micro_batch, bytes, -1, tier});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  void add_persistent_buffers() {
    for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) {
      const GroupSpec& spec = chain_.groups[group];
      const auto add = [&](BufferKind kind, std::int64_t element_bytes, bool sharded, bool on_host) {
        const std::int64_t numel = sharded ? spec.numel / options_.shard_ranks() : spec.numel;
        return add_buffer(kind, -1, group, -1, numel * element_bytes, on_host ? Tier::host : Tier::device);
      };
      const bool slices = spec.shards_parameters;
      weights_.push_back(add(slices ? BufferKind::weight_slice : BufferKind::weights, options_.compute_element_bytes,
                             slices, spec.weights_on_host));
      state_.push_back(
          spec.trainable ? add(BufferKind::state, options_.state_bytes(spec), spec.shards_optimizer, spec.state_on_host)
                         : -1);
      accumulators_.push_back(spec.trainable ? add(BufferKind::accumulator, options_.accumulator_element_bytes,
                                                   spec.shards_gradients, false)
                                             : -1);
      sum_copies_.push_back(spec.state_on_host ? add(BufferKind::sum_copy, options_.accumulator_element_bytes,
                                                     spec.shards_optimizer, true)
                                               : -1);
    }
    token_count_ = add_buffer(BufferKind::token_count, -1, -1, -1, kScalarBytes);
    loss_table_ = add_buffer(BufferKind::losses, -1, -1, -1, kScalarBytes * options_.num_micro_batches);
    gradient_norm_ = add_buffer(BufferKind::gradient_norm, -1, -1, -1, kScalarBytes);
  }

  Instruction& emit(Op op, Scope scope = Scope::none) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.op = op;
    instruction.scope = scope;
    instruction.lane = is_collective(instruction) ? Lane::reduce : Lane::compute;
    return instruction;
  }

  static void append(std::vector<int>& list, int buffer) {
    if (buffer >= 0) list.push_back(buffer);
  }

  // Before a unit's weights are gathered or read.
  void step_for(int visit) {
    for (const int group : chain_.units[visits_[visit].unit].reads) add_step(group);
  }

  // What this visit and those to come read; then on their way what the next visit gathers, so that both links work.
  void gather_for(int index) {
    if (index == 0) fetch_slices_for(0);
    for (const Ahead& ahead : visits_[index].gathers) {
      if (begins_with_steps(options_.pass)) step_for(ahead.visit);
      for (const int group : ahead.groups) gather(group);
    }
    if (index + 1 < static_cast<int>(visits_.size())) fetch_slices_for(index + 1);
  }

  void gather(int group) {
    const GroupSpec& spec = chain_.groups[group];
    gathered_[group] = add_buffer(BufferKind::gathered, -1, group, -1, spec.numel * options_.compute_element_bytes);
    if (spec.shards_parameters) {
      add_gather(group, spec.weights_on_host ? fetched_[group] : weights_[group], gathered_[group]);
    } else {
      add_copy(Op::fetch, group, weights_[group], gathered_[group]);
    }
  }

  void fetch_slices_for(int index) {
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

  void add_gather(int group, int source, int target) {
    Instruction& gather = emit(Op::gather, Scope::shards);
    gather.group = group;
    gather.participants = options_.shard_ranks();
    gather.element_count = chain_.groups[group].numel;
    gather.reads = {source};
    gather.writes = {target};
  }

  Instruction& add_copy(Op op, int group, int source, int target) {
    Instruction& copy = emit(op);
    copy.lane = Lane::copy;
    copy.group = group;
    copy.reads = {source};
    copy.writes = {target};
    return copy;
  }

  void copy_input(Op op, int unit, int micro_batch) {
    const Tier target = op == Op::offload ? Tier::host : Tier::device;
    const int source = std::exchange(
        activations_[unit - 1],
        add_buffer(BufferKind::activation, unit - 1, -1, micro_batch, chain_.units[unit - 1].output_bytes, target));
    Instruction& copy = add_copy(op, -1, source, activations_[unit - 1]);
    copy.unit = unit;
    copy.micro_batch = micro_batch;
    copy.round = micro_batch / options_.world_size;
  }

  void release_after(int visit) {
    for (const int group : visits_[visit].releases) {
      Instruction& release = emit(Op::release);
      release.group = group;
      release.writes = {gathered_[group]};
    }
  }

  void add_visit(int index) {
    const Visit& visit = visits_[index];
    const int head = static_cast<int>(chain_.units.size()) - 1;
    const int micro_batch = split_.micro_batch(visit.round, program_.rank);
    if (visit.unit == 0 && (visit.op == Op::forward || head == 0)) begin_round();
    gather_for(index);
    if (micro_batch >= 0) {
      // Ahead by one unit, whose backward the copy runs beside.
      const bool fetches = visit.op != Op::forward && visit.unit > lowest_trained_;
      if (fetches && chain_.units[visit.unit - 1].input_on_host) copy_input(Op::fetch, visit.unit - 1, micro_batch);
      switch (visit.op) {
        case Op::forward: add_forward(visit.unit, micro_batch); break;
        case Op::loss: add_loss(micro_batch); break;
        default: add_backward(visit.unit, micro_batch);
      }
    }
    release_after(index);
    if (visit.op == Op::forward) return;
    for (const int group : chain_.units[visit.unit].gradients) {
      if (--missing_[group] == 0) add_reduction(group, visit.round, micro_batch);
    }
  }

  void begin_round() {
    activations_.assign(chain_.units.size(), -1);
    saved_.assign(chain_.units.size(), -1);
    boundary_gradients_.assign(chain_.units.size(), -1);
    slots_.assign(chain_.groups.size(), -1);
    missing_.assign(chain_.groups.size(), 0);
    for (const UnitSpec& unit : chain_.units) {
      for (const int group : unit.gradients) ++missing_[group];
    }
  }

  Instruction& emit_unit(Op op, int unit, int micro_batch) {
    Instruction& instruction = emit(op);
    instruction.unit = unit;
    instruction.micro_batch = micro_batch;
    instruction.round = micro_batch / options_.world_size;
    for (const int group : chain_.units[unit].reads) {
      instruction.reads.push_back(chain_.groups[group].is_gathered() ? gathered_[group] : weights_[group]);
    }
    return instruction;
  }

  int workspace(int unit, int micro_batch, std::int64_t bytes) {
    return add_buffer(BufferKind::workspace, unit, -1, micro_batch, bytes);
  }

  void add_forward(int unit, int micro_batch) {
    const UnitSpec& spec = chain_.units[unit];
    const int input = unit > 0 ? activations_[unit - 1] : -1;
    // FORWARD reads it beside the copy.
    if (spec.input_on_host && unit >= lowest_trained_) copy_input(Op::offload, unit, micro_batch);
    Instruction& forward = emit_unit(Op::forward, unit, micro_batch);
    append(forward.reads, input);
    activations_[unit] = add_buffer(BufferKind::activation, unit, -1, micro_batch, spec.output_bytes);
    const bool keeps = !spec.recompute && unit >= lowest_trained_;
    if (keeps) saved_[unit] = add_buffer(BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes);
    append(forward.writes, activations_[unit]);
    append(forward.writes, saved_[unit]);
    append(forward.writes, workspace(unit, micro_batch, spec.forward_workspace(keeps)));
  }

  // What LOSS and BACKWARD share: the gradient of the input boundary, the slots, the workspace.
  void add_gradients(Instruction& instruction) {
    const int unit = instruction.unit, micro_batch = instruction.micro_batch;
    if (unit > 0) {
      boundary_gradients_[unit - 1] =
          add_buffer(BufferKind::boundary_gradient, unit - 1, -1, micro_batch, chain_.units[unit - 1].output_bytes);
      append(instruction.writes, boundary_gradients_[unit - 1]);
    }
    for (const int group : chain_.units[unit].gradients) {
      const bool adds = slots_[group] >= 0;
      if (adds) {
        instruction.reads.push_back(slots_[group]);
      } else {
        slots_[group] = add_buffer(BufferKind::gradient_slot, -1, group, micro_batch,
                                   chain_.groups[group].numel * options_.compute_element_bytes);
      }
      instruction.adds.push_back(adds);
      instruction.writes.push_back(slots_[group]);
    }
    append(instruction.writes, workspace(unit, micro_batch, chain_.units[unit].backward_workspace_bytes));
  }

  void add_loss(int micro_batch) {
    const int unit = static_cast<int>(chain_.units.size()) - 1;
    Instruction& loss = emit_unit(Op::loss, unit, micro_batch);
    if (unit > 0) append(loss.reads, activations_[unit - 1]);
    loss.reads.push_back(token_count_);
    add_gradients(loss);
    losses_.push_back(add_buffer(BufferKind::losses, -1, -1, micro_batch, kScalarBytes));
    loss.writes.push_back(losses_.back());
  }

  void add_recompute(int unit, int micro_batch) {
    const UnitSpec& spec = chain_.units[unit];
    Instruction& recompute = emit_unit(Op::recompute, unit, micro_batch);
    if (unit > 0) append(recompute.reads, activations_[unit - 1]);
    saved_[unit] = add_buffer(BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes);
    append(recompute.writes, saved_[unit]);
    append(recompute.writes, add_buffer(BufferKind::recomputed_output, unit, -1, micro_batch, spec.output_bytes));
    append(recompute.writes, workspace(unit, micro_batch, spec.forward_workspace(true)));
  }

  void add_backward(int unit, int micro_batch) {
    if (chain_.units[unit].recompute) add_recompute(unit, micro_batch);
    Instruction& backward = emit_unit(Op::backward, unit, micro_batch);
    if (unit > 0 && chain_.units[unit].backward_reads_input) append(backward.reads, activations_[unit - 1]);
    append(backward.reads, saved_[unit]);
    append(backward.reads, boundary_gradients_[unit]);
    add_gradients(backward);
  }

  void add_accumulate(int group, int micro_batch, int round) {
    Instruction& accumulate = emit(Op::accumulate);
    accumulate.group = group;
    accumulate.micro_batch = micro_batch;
    accumulate.round = round;
    accumulate.first = round == 0;
    accumulate.reads = {slots_[group]};
    if (!accumulate.first) accumulate.reads.push_back(accumulators_[group]);
    accumulate.writes = {accumulators_[group]};
  }

  void add_reduce(ReduceKind kind, Scope scope, int group, int round) {
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

  int size_of(Scope scope) const {
    return scope == Scope::shards     ? options_.shard_ranks()
           : scope == Scope::replicas ? options_.replicas
                                      : options_.world_size;
  }

  // The group has its last contribution of the round (on the ranks that work in it).
  void add_reduction(int group, int round, int micro_batch) {
    const GroupSpec& spec = chain_.groups[group];
    const bool last = round == split_.rounds() - 1;
    const bool alone = options_.world_size == 1;
    if (!alone && (options_.reduce_each_micro_batch || spec.shards_gradients)) {
      add_reduce(ReduceKind::reduce_scatter, Scope::shards, group, round);
      if (last && !spec.shards_optimizer) add_reduce(ReduceKind::all_gather, Scope::world, group, round);
    } else {
      if (micro_batch >= 0) add_accumulate(group, micro_batch, round);
      if (!alone && last && spec.shards_optimizer) add_reduce(ReduceKind::scatter_sums, Scope::shards, group, round);
      if (!alone && last && !spec.shards_optimizer) add_reduce(ReduceKind::all_reduce, Scope::world, group, round);
    }
    if (last && options_.replicas > 1) add_reduce(ReduceKind::sum_replicas, Scope::replicas, group, round);
    if (last && spec.state_on_host) offload_sum(group);
  }

  void add_norm() {
    Instruction& norm = emit(Op::norm);
    for (const int accumulator : accumulators_) append(norm.reads, accumulator);
    norm.writes = {gradient_norm_};
  }

  void add_report() {
    Instruction& report = emit(Op::report, Scope::world);
    report.participants = options_.world_size;
    report.element_count = options_.num_micro_batches;
    report.reads = losses_;
    report.reads.push_back(gradient_norm_);
    report.writes = {loss_table_, gradient_norm_};
  }

  // As soon as the sum is there, beside the rest of the backward; the update with it where it waits for nothing.
  void offload_sum(int group) {
    add_copy(Op::offload, group, accumulators_[group], sum_copies_[group]);
    if (!options_.steps_wait) update(group);
  }

  // Of what this rank updates: where parameters are sharded too, that is the slice which it keeps, also of frozen ones.
  int add_weight_copy(int group, Tier tier) {
    const GroupSpec& spec = chain_.groups[group];
    const std::int64_t numel =
        spec.numel / (spec.shards_optimizer || spec.shards_parameters ? options_.shard_ranks() : 1);
    return add_buffer(BufferKind::weight_copy, -1, group, -1, numel * options_.compute_element_bytes, tier);
  }

  void add_steps() {
    for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) add_step(group);
  }

  // Once a pass.
  void add_step(int group) {
    const GroupSpec& spec = chain_.groups[group];
    if (!spec.trainable || !steps_left_[group]) return;
    steps_left_[group] = false;
    if (options_.steps_wait || !spec.state_on_host) update(group);
    if (spec.updates_slice_of_whole()) add_gather(group, weights_[group], weights_[group]);
  }

  // On the tier of the state; the weights go where they are kept.
  void update(int group) {
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

  const ChainSpec& chain_;
  const Options& options_;
  const MicroBatchSplit split_;
  const int lowest_trained_;
  const std::vector<Visit> visits_;
  Program program_;
  std::vector<int> weights_;  // or slices of them
  std::vector<int> state_, accumulators_, sum_copies_, losses_;
  int token_count_ = -1, loss_table_ = -1, gradient_norm_ = -1;
  std::vector<int> gathered_, fetched_;  // the last one
  std::vector<bool> steps_left_;
  // Of the round in hand; -1 where there is none (yet).
  std::vector<int> activations_, saved_, boundary_gradients_, slots_;
  std::vector<int> missing_;  // contributions to the groups' gradients still to come
};

}  // namespace

Program build_schedule(const ChainSpec& chain, const Options& options, int rank) {
  check_arguments(chain, options, rank);
  return Builder(chain, options, rank).build();
}

}  // namespace trireme::schedule
