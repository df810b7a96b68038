#include "schedule/build.h"

#include <algorithm>

#include "base/error.h"
#include "layout/mesh.h"

namespace trireme::schedule {
namespace {

constexpr std::int64_t kScalarBytes = 16;  // (sum, weight), (norm, clip factor), or a count and room

void check_groups(const ChainSpec& chain, const Options& options) {
  std::vector<int> contributions(chain.groups.size(), 0);
  for (const UnitSpec& unit : chain.units) {
    for (const int group : unit.reads) {
      TRIREME_CHECK(group >= 0 && group < static_cast<int>(chain.groups.size()), unit.name + ": no such group");
    }
    for (std::size_t i = 0; i < unit.gradients.size(); ++i) {
      const int group = unit.gradients[i];
      TRIREME_CHECK(group >= 0 && group < static_cast<int>(chain.groups.size()), unit.name + ": no such group");
      TRIREME_CHECK(chain.groups[group].trainable,
                    unit.name + ": gradient for frozen group " + chain.groups[group].name);
      const auto begin = unit.gradients.begin();
      TRIREME_CHECK(std::find(begin, begin + i, group) == begin + i, unit.name + ": a group is listed twice");
      ++contributions[group];
    }
  }
  for (std::size_t group = 0; group < chain.groups.size(); ++group) {
    const GroupSpec& spec = chain.groups[group];
    TRIREME_CHECK(spec.numel > 0 && spec.numel % (options.world_size * std::int64_t{256}) == 0,
                  spec.name + ": " + std::to_string(spec.numel) + " elements do not make equal, aligned slices");
    TRIREME_CHECK(!spec.trainable || contributions[group] > 0, spec.name + ": no unit gives its gradient");
  }
}

void check_arguments(const ChainSpec& chain, const Options& options, int rank) {
  TRIREME_CHECK(options.world_size >= 1 && rank >= 0 && rank < options.world_size, "rank " + std::to_string(rank));
  if (options.world_size > options.num_micro_batches) {
    throw Error(2210, "schedule",
                std::to_string(options.world_size) + " data ranks for " + std::to_string(options.num_micro_batches) +
                    " micro-batches a step: some ranks would have no work",
                "start at most as many ranks as global_batch_size / micro_batch_size");
  }
  TRIREME_CHECK(!chain.units.empty(), "a chain has at least a head");
  TRIREME_CHECK(options.gradient_slots >= 1, "gradient_slots is " + std::to_string(options.gradient_slots));
  check_groups(chain, options);
}

// Appends one rank's buffers and instructions in issue order.
class Builder {
 public:
  Builder(const ChainSpec& chain, const Options& options, int rank)
      : chain_(chain), options_(options), split_{options.num_micro_batches, options.world_size} {
    program_.rank = rank;
    program_.world_size = options.world_size;
    add_persistent_buffers();
  }

  Program build() {
    Instruction& count = emit(Op::count);
    count.element_count = 1;
    count.participants = options_.world_size;
    count.writes = {token_count_};
    for (int round = 0; round < split_.rounds(); ++round) add_round(round);
    add_report();
    add_norm_and_steps();
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
      const auto add = [&](BufferKind kind, std::int64_t element_bytes) {
        return add_buffer(kind, -1, group, -1, spec.numel * element_bytes);
      };
      weights_.push_back(add(BufferKind::weights, options_.compute_element_bytes));
      state_.push_back(spec.trainable ? add(BufferKind::state, options_.state_bytes_per_element) : -1);
      accumulators_.push_back(spec.trainable ? add(BufferKind::accumulator, options_.accumulator_element_bytes) : -1);
    }
    token_count_ = add_buffer(BufferKind::token_count, -1, -1, -1, kScalarBytes);
    loss_table_ = add_buffer(BufferKind::losses, -1, -1, -1, kScalarBytes * options_.num_micro_batches);
    gradient_norm_ = add_buffer(BufferKind::gradient_norm, -1, -1, -1, kScalarBytes);
  }

  Instruction& emit(Op op) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.op = op;
    instruction.lane = is_collective(instruction) ? Lane::reduce : Lane::compute;
    return instruction;
  }

  static void append(std::vector<int>& list, int buffer) {
    if (buffer >= 0) list.push_back(buffer);
  }

  Instruction& emit_unit(Op op, int unit, int micro_batch) {
    Instruction& instruction = emit(op);
    instruction.unit = unit;
    instruction.micro_batch = micro_batch;
    instruction.round = micro_batch / options_.world_size;
    for (const int group : chain_.units[unit].reads) instruction.reads.push_back(weights_[group]);
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
    saved_[unit] = add_buffer(BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes);
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

  void add_backward(int unit, int micro_batch) {
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

  void add_reduce(ReduceKind kind, int group, int round) {
    const bool scatter = kind == ReduceKind::reduce_scatter;
    Instruction& reduce = emit(Op::reduce);
    reduce.reduce = kind;
    reduce.group = group;
    reduce.round = round;
    reduce.participants = scatter ? split_.ranks_in_round(round) : options_.world_size;
    reduce.first = scatter && round == 0;
    reduce.element_count = chain_.groups[group].numel;
    if (scatter) append(reduce.reads, slots_[group]);
    if (!reduce.first) reduce.reads.push_back(accumulators_[group]);
    reduce.writes = {accumulators_[group]};
  }

  // The group has its last contribution of the round (on the ranks that work in it).
  void add_reduction(int group, int round, int micro_batch) {
    const bool last = round == split_.rounds() - 1;
    const bool alone = options_.world_size == 1;
    if (!alone && options_.reduce_each_micro_batch) {
      add_reduce(ReduceKind::reduce_scatter, group, round);
      if (last) add_reduce(ReduceKind::all_gather, group, round);
      return;
    }
    if (micro_batch >= 0) add_accumulate(group, micro_batch, round);
    if (!alone && last) add_reduce(ReduceKind::all_reduce, group, round);
  }

  void add_round(int round) {
    const int num_units = static_cast<int>(chain_.units.size());
    const int micro_batch = split_.micro_batch(round, program_.rank);
    activations_.assign(num_units, -1);
    saved_.assign(num_units, -1);
    boundary_gradients_.assign(num_units, -1);
    slots_.assign(chain_.groups.size(), -1);
    std::vector<int> missing(chain_.groups.size(), 0);
    for (const UnitSpec& unit : chain_.units) {
      for (const int group : unit.gradients) ++missing[group];
    }
    for (int unit = 0; micro_batch >= 0 && unit < num_units - 1; ++unit) add_forward(unit, micro_batch);
    for (int unit = num_units - 1; unit >= 0; --unit) {
      if (micro_batch >= 0 && unit == num_units - 1) add_loss(micro_batch);
      if (micro_batch >= 0 && unit < num_units - 1) add_backward(unit, micro_batch);
      for (const int group : chain_.units[unit].gradients) {
        if (--missing[group] == 0) add_reduction(group, round, micro_batch);
      }
    }
  }

  void add_report() {
    Instruction& report = emit(Op::report);
    report.participants = options_.world_size;
    report.element_count = options_.num_micro_batches;
    report.reads = losses_;
    report.writes = {loss_table_};
  }

  void add_norm_and_steps() {
    Instruction& norm = emit(Op::norm);
    for (const int accumulator : accumulators_) append(norm.reads, accumulator);
    norm.writes = {gradient_norm_};
    for (int group = 0; group < static_cast<int>(chain_.groups.size()); ++group) {
      if (!chain_.groups[group].trainable) continue;
      Instruction& step = emit(Op::step);
      step.group = group;
      step.reads = {accumulators_[group], gradient_norm_};
      append(step.reads, state_[group]);
      if (options_.weights_are_master) step.reads.push_back(weights_[group]);
      append(step.writes, state_[group]);
      step.writes.push_back(weights_[group]);
    }
  }

  const ChainSpec& chain_;
  const Options& options_;
  MicroBatchSplit split_;
  Program program_;
  std::vector<int> weights_, state_, accumulators_, losses_;
  int token_count_ = -1, loss_table_ = -1, gradient_norm_ = -1;
  // Of the micro-batch in hand; -1 where there is none (yet).
  std::vector<int> activations_, saved_, boundary_gradients_, slots_;
};

}  // namespace

Program build_schedule(const ChainSpec& chain, const Options& options, int rank) {
  check_arguments(chain, options, rank);
  return Builder(chain, options, rank).build();
}

}  // namespace trireme::schedule
