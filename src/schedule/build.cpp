// A pass as units see it: their visits, what they read and write, and the end of the step.
#include <utility>

#include "schedule/build_check.h"
#include "schedule/builder.h"

namespace trireme::schedule {

Builder::Builder(const ChainSpec& chain, const Options& options, int rank)
    : chain_(chain),
      options_(options),
      split_{options.num_micro_batches, options.world_size},
      lowest_trained_(lowest_trained(chain)),
      visits_(list_visits(chain, options, split_.rounds())),
      gathered_(chain.groups.size(), -1),
      fetched_(chain.groups.size(), -1),
      steps_left_(chain.groups.size(), true),
      snapshots_left_(chain.groups.size(), options.snapshots == Snapshots::taken) {
  program_.pass = options.pass;
  program_.snapshots = options.snapshots;
  program_.rank = rank;
  program_.world_size = options.world_size;
  add_persistent_buffers();
}

Program Builder::build() {
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

int Builder::add_buffer(BufferKind kind, int unit, int group, int micro_batch, std::int64_t bytes, Tier tier) {
  if (bytes == 0) return -1;
  program_.buffers.push_back({kind, unit, group, micro_batch, bytes, -1, tier});
  return static_cast<int>(program_.buffers.size()) - 1;
}

Instruction& Builder::emit(Op op, Scope scope) {
  Instruction& instruction = program_.instructions.emplace_back();
  instruction.op = op;
  instruction.scope = scope;
  instruction.lane = is_collective(instruction) ? Lane::reduce : Lane::compute;
  return instruction;
}

void Builder::append(std::vector<int>& list, int buffer) {
  if (buffer >= 0) list.push_back(buffer);
}

void Builder::copy_input(Op op, int unit, int micro_batch) {
  const Tier target = op == Op::offload ? Tier::host : Tier::device;
  const int source = std::exchange(activations_[unit - 1], add_buffer(BufferKind::activation, unit - 1, -1, micro_batch,
                                                                      chain_.units[unit - 1].output_bytes, target));
  Instruction& copy = add_copy(op, -1, source, activations_[unit - 1]);
  copy.unit = unit;
  copy.micro_batch = micro_batch;
  copy.round = micro_batch / options_.world_size;
}

void Builder::add_visit(int index) {
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
  // One unit's beside the forward of the next, behind the updates that others wait for.
  if (begins_with_steps(options_.pass)) {
    for (const int group : chain_.units[visit.unit].reads) add_snapshot(group);
  }
  release_after(index);
  if (visit.op == Op::forward) return;
  for (const int group : chain_.units[visit.unit].gradients) {
    if (--missing_[group] == 0) add_reduction(group, visit.round, micro_batch);
  }
}

void Builder::begin_round() {
  activations_.assign(chain_.units.size(), -1);
  saved_.assign(chain_.units.size(), -1);
  boundary_gradients_.assign(chain_.units.size(), -1);
  slots_.assign(chain_.groups.size(), -1);
  missing_.assign(chain_.groups.size(), 0);
  for (const UnitSpec& unit : chain_.units) {
    for (const int group : unit.gradients) ++missing_[group];
  }
}

Instruction& Builder::emit_unit(Op op, int unit, int micro_batch) {
  Instruction& instruction = emit(op);
  instruction.unit = unit;
  instruction.micro_batch = micro_batch;
  instruction.round = micro_batch / options_.world_size;
  for (const int group : chain_.units[unit].reads) {
    instruction.reads.push_back(chain_.groups[group].is_gathered() ? gathered_[group] : weights_[group]);
  }
  return instruction;
}

int Builder::workspace(int unit, int micro_batch, std::int64_t bytes) {
  return add_buffer(BufferKind::workspace, unit, -1, micro_batch, bytes);
}

void Builder::add_forward(int unit, int micro_batch) {
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

// What LOSS and BACKWARD share: the gradient of the input boundary, the slots or sums, the workspace.
void Builder::add_gradients(Instruction& instruction) {
  const int unit = instruction.unit, micro_batch = instruction.micro_batch;
  if (unit > 0) {
    boundary_gradients_[unit - 1] =
        add_buffer(BufferKind::boundary_gradient, unit - 1, -1, micro_batch, chain_.units[unit - 1].output_bytes);
    append(instruction.writes, boundary_gradients_[unit - 1]);
  }
  for (const int group : chain_.units[unit].gradients) {
    const GroupSpec& spec = chain_.groups[group];
    const bool adds = slots_[group] >= 0 || (spec.adds_in_place && instruction.round > 0);
    if (slots_[group] < 0) {
      slots_[group] = spec.adds_in_place ? accumulators_[group]
                                         : add_buffer(BufferKind::gradient_slot, -1, group, micro_batch,
                                                      spec.numel * options_.compute_element_bytes);
    }
    if (adds) instruction.reads.push_back(slots_[group]);
    instruction.adds.push_back(adds);
    instruction.writes.push_back(slots_[group]);
  }
  append(instruction.writes, workspace(unit, micro_batch, chain_.units[unit].backward_workspace_bytes));
}

void Builder::add_loss(int micro_batch) {
  const int unit = static_cast<int>(chain_.units.size()) - 1;
  Instruction& loss = emit_unit(Op::loss, unit, micro_batch);
  if (unit > 0) append(loss.reads, activations_[unit - 1]);
  loss.reads.push_back(token_count_);
  add_gradients(loss);
  losses_.push_back(add_buffer(BufferKind::losses, -1, -1, micro_batch, kScalarBytes));
  loss.writes.push_back(losses_.back());
}

void Builder::add_recompute(int unit, int micro_batch) {
  const UnitSpec& spec = chain_.units[unit];
  Instruction& recompute = emit_unit(Op::recompute, unit, micro_batch);
  if (unit > 0) append(recompute.reads, activations_[unit - 1]);
  saved_[unit] = add_buffer(BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes);
  append(recompute.writes, saved_[unit]);
  append(recompute.writes, add_buffer(BufferKind::recomputed_output, unit, -1, micro_batch, spec.output_bytes));
  append(recompute.writes, workspace(unit, micro_batch, spec.forward_workspace(true)));
}

void Builder::add_backward(int unit, int micro_batch) {
  if (chain_.units[unit].recompute) add_recompute(unit, micro_batch);
  Instruction& backward = emit_unit(Op::backward, unit, micro_batch);
  if (unit > 0 && chain_.units[unit].backward_reads_input) append(backward.reads, activations_[unit - 1]);
  append(backward.reads, saved_[unit]);
  append(backward.reads, boundary_gradients_[unit]);
  add_gradients(backward);
}

void Builder::add_norm() {
  Instruction& norm = emit(Op::norm);
  for (const int accumulator : accumulators_) append(norm.reads, accumulator);
  norm.writes = {gradient_norm_};
}

void Builder::add_report() {
  Instruction& report = emit(Op::report, Scope::world);
  report.participants = options_.world_size;
  report.element_count = options_.num_micro_batches;
  report.reads = losses_;
  report.reads.push_back(gradient_norm_);
  report.writes = {loss_table_, gradient_norm_};
}

Program build_schedule(const ChainSpec& chain, const Options& options, int rank) {
  check_arguments(chain, options, rank);
  return Builder(chain, options, rank).build();
}

}  // namespace trireme::schedule
