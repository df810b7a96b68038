#include "schedule/verify_parts.h"

namespace trireme::schedule {
namespace {

// A buffer of no bytes does not exist.
void add(std::vector<Buffer>& list, const Buffer& buffer) {
  if (buffer.bytes > 0) list.push_back(buffer);
}

struct Roles {
  const ChainSpec& chain;
  const Options& options;

  Buffer of_group(BufferKind kind, int group, std::int64_t element_bytes, bool sharded, int micro_batch = -1,
                  Tier tier = Tier::device) const {
    const std::int64_t numel = chain.groups[group].numel;
    return {kind, -1, group, micro_batch, (sharded ? numel / options.shard_ranks() : numel) * element_bytes, -1, tier};
  }
  // Where the group's weights stay: all of them, or this rank's slice.
  Buffer kept_weights(int group) const {
    const GroupSpec& spec = chain.groups[group];
    const bool sharded = spec.shards_parameters;
    return of_group(sharded ? BufferKind::weight_slice : BufferKind::weights, group, options.compute_element_bytes,
                    sharded, -1, spec.weights_on_host ? Tier::host : Tier::device);
  }
  // What units read.
  Buffer weights(int group) const {
    const GroupSpec& spec = chain.groups[group];
    const bool elsewhere = spec.shards_parameters || spec.weights_on_host;
    return of_group(elsewhere ? BufferKind::gathered : BufferKind::weights, group, options.compute_element_bytes,
                    false);
  }
  // A slice on its way to the gather.
  Buffer fetched_slice(int group) const {
    return of_group(BufferKind::weight_copy, group, options.compute_element_bytes, true);
  }
  // What STEP on the host makes of weights that are kept on the device.
  Buffer stepped_weights(int group) const {
    return of_group(BufferKind::weight_copy, group, options.compute_element_bytes, chain.groups[group].shards_optimizer,
                    -1, Tier::host);
  }
  Buffer offloaded_sum(int group) const {
    return of_group(BufferKind::sum_copy, group, options.accumulator_element_bytes,
                    chain.groups[group].shards_optimizer, -1, Tier::host);
  }
  // On the host the master is apart, unless the weights are there too.
  Buffer state(int group) const {
    const GroupSpec& spec = chain.groups[group];
    const bool adds_master = options.weights_are_master && spec.state_on_host && !spec.weights_on_host;
    return of_group(BufferKind::state, group,
                    options.state_bytes_per_element + (adds_master ? options.compute_element_bytes : 0),
                    spec.shards_optimizer, -1, spec.state_on_host ? Tier::host : Tier::device);
  }
  // Where masters are apart they are among the state's bytes.
  Buffer snapshot(int group) const {
    const std::int64_t master = options.weights_are_master ? options.compute_element_bytes : 0;
    return of_group(BufferKind::snapshot, group, options.state_bytes_per_element + master, true, -1, Tier::host);
  }
  Buffer accumulator(int group) const {
    return of_group(BufferKind::accumulator, group, options.accumulator_element_bytes,
                    chain.groups[group].shards_gradients);
  }
  Buffer slot(int group, int micro_batch) const {
    return of_group(BufferKind::gradient_slot, group, options.compute_element_bytes, false, micro_batch);
  }
  // Where units put their gradients.
  Buffer gradient(int group, int micro_batch) const {
    return chain.groups[group].adds_in_place ? accumulator(group) : slot(group, micro_batch);
  }
  // Of the boundary after `unit`; before the first unit there is none.
  Buffer boundary(BufferKind kind, int unit, int micro_batch, Tier tier = Tier::device) const {
    return {kind, unit, -1, micro_batch, unit < 0 ? 0 : chain.units[unit].output_bytes, -1, tier};
  }
  static Buffer scalars(BufferKind kind, int micro_batch, int count) { return {kind, -1, -1, micro_batch, 16 * count}; }
};

Accesses of_forward(const Roles& roles, const Instruction& instruction) {
  const int unit = instruction.unit, micro_batch = instruction.micro_batch;
  const UnitSpec& spec = roles.chain.units[unit];
  Accesses accesses;
  for (const int group : spec.reads) add(accesses.reads, roles.weights(group));
  add(accesses.reads, roles.boundary(BufferKind::activation, unit - 1, micro_batch));
  const bool again = instruction.op == Op::recompute;
  if (!again) add(accesses.writes, roles.boundary(BufferKind::activation, unit, micro_batch));
  const bool keeps = again || (!spec.recompute && has_backward(roles.chain, unit));
  if (keeps) add(accesses.writes, {BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes});
  if (again) add(accesses.writes, roles.boundary(BufferKind::recomputed_output, unit, micro_batch));
  add(accesses.writes, {BufferKind::workspace, unit, -1, micro_batch, spec.forward_workspace(keeps)});
  return accesses;
}

// LOSS and BACKWARD: gradients of the input boundary and of the groups.
Accesses of_gradients(const Roles& roles, const Instruction& instruction) {
  const int unit = instruction.unit, micro_batch = instruction.micro_batch;
  const bool is_loss = instruction.op == Op::loss;
  const UnitSpec& spec = roles.chain.units[unit];
  Accesses accesses;
  for (const int group : spec.reads) add(accesses.reads, roles.weights(group));
  if (is_loss || spec.backward_reads_input) {
    add(accesses.reads, roles.boundary(BufferKind::activation, unit - 1, micro_batch));
  }
  if (is_loss) {
    add(accesses.reads, Roles::scalars(BufferKind::token_count, -1, 1));
  } else {
    add(accesses.reads, {BufferKind::saved, unit, -1, micro_batch, spec.saved_bytes});
    add(accesses.reads, roles.boundary(BufferKind::boundary_gradient, unit, micro_batch));
  }
  add(accesses.writes, roles.boundary(BufferKind::boundary_gradient, unit - 1, micro_batch));
  for (std::size_t i = 0; i < spec.gradients.size(); ++i) {
    const Buffer gradient = roles.gradient(spec.gradients[i], micro_batch);
    if (i < instruction.adds.size() && instruction.adds[i]) add(accesses.reads, gradient);
    add(accesses.writes, gradient);
  }
  add(accesses.writes, {BufferKind::workspace, unit, -1, micro_batch, spec.backward_workspace_bytes});
  if (is_loss) add(accesses.writes, Roles::scalars(BufferKind::losses, micro_batch, 1));
  return accesses;
}

// ACCUMULATE and REDUCE: into the accumulator.
Accesses of_sum(const Roles& roles, const Instruction& instruction, int rank) {
  const int group = instruction.group;
  Accesses accesses;
  if (instruction.op == Op::accumulate) add(accesses.reads, roles.slot(group, instruction.micro_batch));
  if (instruction.reduce == ReduceKind::reduce_scatter && roles.options.slice_of(rank) < instruction.participants) {
    add(accesses.reads, roles.slot(group, instruction.round * roles.options.world_size + rank));
  }
  if (!instruction.first) add(accesses.reads, roles.accumulator(group));
  add(accesses.writes, roles.accumulator(group));
  return accesses;
}

Accesses of_report(const Roles& roles, int rank) {
  Accesses accesses;
  const int count = roles.options.num_micro_batches;
  for (int micro_batch = rank; micro_batch < count; micro_batch += roles.options.world_size) {
    add(accesses.reads, Roles::scalars(BufferKind::losses, micro_batch, 1));
  }
  add(accesses.reads, Roles::scalars(BufferKind::gradient_norm, -1, 1));
  add(accesses.writes, Roles::scalars(BufferKind::losses, -1, count));
  add(accesses.writes, Roles::scalars(BufferKind::gradient_norm, -1, 1));
  return accesses;
}

Accesses of_norm(const Roles& roles) {
  Accesses accesses;
  for (int group = 0; group < static_cast<int>(roles.chain.groups.size()); ++group) {
    if (roles.chain.groups[group].trainable) add(accesses.reads, roles.accumulator(group));
  }
  add(accesses.writes, Roles::scalars(BufferKind::gradient_norm, -1, 1));
  return accesses;
}

Accesses of_step(const Roles& roles, int group) {
  const GroupSpec& spec = roles.chain.groups[group];
  const bool on_host = spec.state_on_host, sends_weights = on_host && !spec.weights_on_host;
  Accesses accesses;
  add(accesses.reads, on_host ? roles.offloaded_sum(group) : roles.accumulator(group));
  if (!on_host || roles.options.steps_wait) add(accesses.reads, Roles::scalars(BufferKind::gradient_norm, -1, 1));
  add(accesses.reads, roles.state(group));
  const bool leaves_some = spec.shards_optimizer && !spec.shards_parameters;  // other ranks' slices
  const bool updates_weights = roles.options.weights_are_master || leaves_some;
  if (updates_weights && !sends_weights) add(accesses.reads, roles.kept_weights(group));
  add(accesses.writes, roles.state(group));
  add(accesses.writes, sends_weights ? roles.stepped_weights(group) : roles.kept_weights(group));
  return accesses;
}

Accesses of_gather(const Roles& roles, int group) {
  const GroupSpec& spec = roles.chain.groups[group];
  const bool fetched = spec.shards_parameters && spec.weights_on_host;
  return {{fetched ? roles.fetched_slice(group) : roles.kept_weights(group)}, {roles.weights(group)}};
}

Accesses of_copy(const Roles& roles, const Instruction& instruction) {
  const bool offloads = instruction.op == Op::offload;
  const int unit = instruction.unit, group = instruction.group;
  if (unit >= 0) {
    const Tier from = offloads ? Tier::device : Tier::host, to = offloads ? Tier::host : Tier::device;
    return {{roles.boundary(BufferKind::activation, unit - 1, instruction.micro_batch, from)},
            {roles.boundary(BufferKind::activation, unit - 1, instruction.micro_batch, to)}};
  }
  const GroupSpec& spec = roles.chain.groups[group];
  if (offloads) return {{roles.accumulator(group)}, {roles.offloaded_sum(group)}};
  if (spec.weights_on_host) {
    return {{roles.kept_weights(group)}, {spec.shards_parameters ? roles.fetched_slice(group) : roles.weights(group)}};
  }
  Accesses accesses{{roles.stepped_weights(group)}, {roles.kept_weights(group)}};
  const bool leaves_some = spec.shards_optimizer && !spec.shards_parameters;
  if (leaves_some) add(accesses.reads, roles.kept_weights(group));
  return accesses;
}

Accesses of_snapshot(const Roles& roles, int group) {
  const GroupSpec& spec = roles.chain.groups[group];
  Accesses accesses;
  add(accesses.reads, roles.state(group));
  const bool units_read_masters = roles.options.weights_are_master && (!spec.state_on_host || spec.weights_on_host);
  if (units_read_masters) add(accesses.reads, roles.kept_weights(group));
  add(accesses.writes, roles.snapshot(group));
  return accesses;
}

}  // namespace

std::vector<Buffer> expected_persistent(const ChainSpec& chain, const Options& options, int rank) {
  const Roles roles{chain, options};
  std::vector<Buffer> buffers;
  for (int group = 0; group < static_cast<int>(chain.groups.size()); ++group) {
    add(buffers, roles.kept_weights(group));
    if (!chain.groups[group].trainable) continue;
    add(buffers, roles.state(group));
    add(buffers, roles.accumulator(group));
    if (chain.groups[group].state_on_host) add(buffers, roles.offloaded_sum(group));
    if (options.snapshots != Snapshots::none) add(buffers, roles.snapshot(group));
  }
  add(buffers, Roles::scalars(BufferKind::token_count, -1, 1));
  add(buffers, Roles::scalars(BufferKind::losses, -1, options.num_micro_batches));
  add(buffers, Roles::scalars(BufferKind::gradient_norm, -1, 1));
  if (options.pass == Pass::drain) return buffers;
  for (int micro_batch = rank; micro_batch < options.num_micro_batches; micro_batch += options.world_size) {
    add(buffers, Roles::scalars(BufferKind::losses, micro_batch, 1));
  }
  return buffers;
}

bool has_backward(const ChainSpec& chain, int unit) {
  for (; unit >= 0; --unit) {
    if (!chain.units[unit].gradients.empty()) return true;
  }
  return false;
}

Accesses expected_accesses(const ChainSpec& chain, const Options& options, int rank, const Instruction& instruction) {
  const Roles roles{chain, options};
  switch (instruction.op) {
    case Op::count: return {{}, {Roles::scalars(BufferKind::token_count, -1, 1)}};
    case Op::forward:
    case Op::recompute: return of_forward(roles, instruction);
    case Op::loss:
    case Op::backward: return of_gradients(roles, instruction);
    case Op::accumulate:
    case Op::reduce: return of_sum(roles, instruction, rank);
    case Op::report: return of_report(roles, rank);
    case Op::norm: return of_norm(roles);
    case Op::step: return of_step(roles, instruction.group);
    case Op::gather: return of_gather(roles, instruction.group);
    case Op::release: return {{}, {roles.weights(instruction.group)}};
    case Op::offload:
    case Op::fetch: return of_copy(roles, instruction);
    case Op::snapshot: return of_snapshot(roles, instruction.group);
  }
  return {};
}

}  // namespace trireme::schedule
