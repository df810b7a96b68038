#include "schedule/build.h"

#include <algorithm>
#include <utility>

#include "layout/mesh.h"
#include "schedule/build_check.h"
#include "schedule/rank_classes.h"

namespace trireme::schedule {
namespace {

constexpr std::int64_t kScalarBytes = 16;  // (sum, weight), (norm, clip factor), or a count and room

// A unit at work in one round: forward, loss or backward. The same on all ranks, also on one without a micro-batch.
struct Visit {
  Op op = Op::forward;
  int unit = -1, round = -1;
};

// Nothing below it is trained, so nothing there has a backward, nor keeps anything for one. At most the head.
int lowest_trained(const ChainSpec& chain) {
  const auto is_trained = [](const UnitSpec& unit) { return !unit.gradients.empty(); };
  const auto found = std::find_if(chain.units.begin(), chain.units.end() - 1, is_trained);
  return static_cast<int>(found - chain.units.begin());
}

std::vector<Visit> list_visits(int num_units, int num_rounds, int lowest) {
  std::vector<Visit> visits;
  for (int round = 0; round < num_rounds; ++round) {
    for (int unit = 0; unit < num_units - 1; ++unit) visits.push_back({Op::forward, unit, round});
    visits.push_back({Op::loss, num_units - 1, round});
    for (int unit = num_units - 2; unit >= lowest; --unit) visits.push_back({Op::backward, unit, round});
  }
  return visits;
}

// Appends one rank's buffers and instructions in issue order.
class Builder {
 public:
  Builder(const ChainSpec& chain, const Options& options, int rank)
      : chain_(chain),
        options_(options),
        split_{options.num_micro_batches, options.world_size},
        lowest_trained_(lowest_trained(chain)),
        visits_(list_visits(static_cast<int>(chain.units.size()), split_.rounds(), lowest_trained_)),
        gathered_(chain.groups.size(), -1),
        held_until_(chain.groups.size(), -1),
        steps_left_(chain.groups.size(), true) {
    program_.pass = options.pass;
    program_.rank = rank;
    program_.world_size = options.world_size;
    add_persistent_buffers();
    find_needs();
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
  int add_buffer(BufferKind kind, int unit, int group, int micro_batch, std::int64_t bytes) {
    if (bytes == 0) return -1;
    program_.buffers.push_back({kind, unit, group, micro_batch, bytes});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  void add_persistent_buffers() {
    for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) {
      const GroupSpec& spec = chain_.groups[group];
      const auto add = [&](BufferKind kind, std::int64_t element_bytes, bool sharded) {
        const std::int64_t numel = sharded ? spec.numel / options_.shard_ranks() : spec.numel;
        return add_buffer(kind, -1, group, -1, numel * element_bytes);
      };
      const bool slices = spec.shards_parameters;
      weights_.push_back(
          add(slices ? BufferKind::weight_slice : BufferKind::weights, options_.compute_element_bytes, slices));
      state_.push_back(spec.trainable ? add(BufferKind::state, options_.state_bytes_per_element, spec.shards_optimizer)
                                      : -1);
      accumulators_.push_back(
          spec.trainable ? add(BufferKind::accumulator, options_.accumulator_element_bytes, spec.shards_gradients)
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

  // next_use_[visit] holds, for each sharded group that the visit reads, the next visit that reads it.
  void find_needs() {
    const int count = static_cast<int>(visits_.size());
    std::vector<int> next(chain_.groups.size(), count);
    next_use_.resize(visits_.size());
    for (int visit = count - 1; visit >= 0; --visit) {
      for (const int group : chain_.units[visits_[visit].unit].reads) {
        if (!chain_.groups[group].shards_parameters) continue;
        next_use_[visit].emplace_back(group, next[group]);
        next[group] = visit;
      }
    }
  }

  // Before a unit's weights are gathered or read.
  void step_for(int visit) {
    for (const int group : chain_.units[visits_[visit].unit].reads) add_step(group);
  }

  // What the visit reads and its next ones will. Those to come wait where they do not fit beside what is there.
  void gather_for(int index) {
    const int last = std::min(index + options_.gather_ahead, static_cast<int>(visits_.size()) - 1);
    for (int visit = index; visit <= last; ++visit) {
      if (begins_with_steps(options_.pass)) step_for(visit);
      for (const auto& [group, next] : next_use_[visit]) {
        if (gathered_[group] >= 0) continue;
        if (visit > index && !fits(group, index, visit)) return;
        gather(group, visit);
      }
    }
  }

  void gather(int group, int visit) {
    held_until_[group] = visit;
    const std::int64_t numel = chain_.groups[group].numel;
    gathered_[group] = add_buffer(BufferKind::gathered, -1, group, -1, numel * options_.compute_element_bytes);
    add_gather(group, gathered_[group]);
  }

  // Whether a group may be there from one visit to another: with what is held then and what each of them reads it keeps
  // max_live, unless a visit's own need is larger, beside which nothing else is held.
  bool fits(int group, int from, int until) const {
    if (options_.max_live == 0) return true;
    for (int visit = from; visit <= until; ++visit) {
      std::vector<bool> live(chain_.groups.size(), false);
      for (const auto& [read, next] : next_use_[visit]) live[read] = true;
      const std::int64_t needed = elements_of(live);
      for (std::size_t other = 0; other < live.size(); ++other) {
        if (gathered_[other] >= 0 && held_until_[other] >= visit) live[other] = true;
      }
      live[group] = true;
      if (elements_of(live) > std::max(options_.max_live, needed)) return false;
    }
    return true;
  }

  std::int64_t elements_of(const std::vector<bool>& groups) const {
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (groups[group]) elements += chain_.groups[group].numel;
    }
    return elements;
  }

  void add_gather(int group, int target) {
    Instruction& gather = emit(Op::gather, Scope::shards);
    gather.group = group;
    gather.participants = options_.shard_ranks();
    gather.element_count = chain_.groups[group].numel;
    gather.reads = {weights_[group]};
    gather.writes = {target};
  }

  // Elements of other sharded groups that are needed between two visits.
  std::int64_t elements_between(int visit, int next, int group) const {
    std::int64_t elements = 0;
    std::vector<bool> seen(chain_.groups.size(), false);
    for (int between = visit + 1; between < next; ++between) {
      for (const auto& [other, ignored] : next_use_[between]) {
        if (other == group || seen[other]) continue;
        seen[other] = true;
        elements += chain_.groups[other].numel;
      }
    }
    return elements;
  }

  bool stays_gathered(int visit, int next, int group) const {
    if (next == static_cast<int>(visits_.size()) || !fits(group, visit + 1, next)) return false;
    if (options_.gather_once || next <= visit + options_.gather_ahead) return true;
    const std::int64_t between = elements_between(visit, next, group);
    return between == 0 || between < options_.reuse_distance;
  }

  void release_after(int visit) {
    for (const auto& [group, next] : next_use_[visit]) {
      if (stays_gathered(visit, next, group)) {
        held_until_[group] = next;
        continue;
      }
      Instruction& release = emit(Op::release);
      release.group = group;
      release.writes = {gathered_[group]};
      gathered_[group] = -1;
    }
  }

  void add_visit(int index) {
    const Visit& visit = visits_[index];
    const int head = static_cast<int>(chain_.units.size()) - 1;
    const int micro_batch = split_.micro_batch(visit.round, program_.rank);
    if (visit.unit == 0 && (visit.op == Op::forward || head == 0)) begin_round();
    gather_for(index);
    if (micro_batch >= 0) {
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
      instruction.reads.push_back(chain_.groups[group].shards_parameters ? gathered_[group] : weights_[group]);
    }
    return instruction;
  }

  int workspace(int unit, int micro_batch, std::int64_t bytes) {
    return add_buffer(BufferKind::workspace, unit, -1, micro_batch, bytes);
  }

  void add_forward(int unit, int micro_batch) {
    const UnitSpec& spec = chain_.units[unit];
    Instruction& forward = emit_unit(Op::forward, unit, micro_batch);
    if (unit > 0) append(forward.reads, activations_[unit - 1]);
    activations_[unit] = add_buffer(BufferKind::activation, unit, -1, micro_batch, spec.output_bytes);
    const bool keeps = !spec.recompute && unit >= lowest_trained_;
    if (keeps) saved_[unit] = add_buffer(BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes);
    append(forward.writes, activations_[unit]);
    append(forward.writes, saved_[unit]);
    append(forward.writes, workspace(unit, micro_batch, spec.forward_workspace_bytes));
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
    append(recompute.writes, workspace(unit, micro_batch, spec.forward_workspace_bytes));
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

  void add_steps() {
    for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) add_step(group);
  }

  // Once a pass.
  void add_step(int group) {
    const GroupSpec& spec = chain_.groups[group];
    if (!spec.trainable || !steps_left_[group]) return;
    steps_left_[group] = false;
    const bool slice_of_whole = spec.shards_optimizer && !spec.shards_parameters;
    Instruction& step = emit(Op::step);
    step.group = group;
    step.reads = {accumulators_[group], gradient_norm_};
    append(step.reads, state_[group]);
    if (options_.weights_are_master || slice_of_whole) step.reads.push_back(weights_[group]);
    append(step.writes, state_[group]);
    step.writes.push_back(weights_[group]);
    if (slice_of_whole) add_gather(group, weights_[group]);
  }

  const ChainSpec& chain_;
  const Options& options_;
  const MicroBatchSplit split_;
  const int lowest_trained_;
  const std::vector<Visit> visits_;
  std::vector<std::vector<std::pair<int, int>>> next_use_;  // per visit: (sharded group, visit that reads it next)
  Program program_;
  std::vector<int> weights_;  // or slices of them
  std::vector<int> state_, accumulators_, losses_;
  int token_count_ = -1, loss_table_ = -1, gradient_norm_ = -1;
  std::vector<int> gathered_;    // -1: is not
  std::vector<int> held_until_;  // the visit for which what is gathered is kept
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
