// Which bytes an instruction reads and writes, from the chain and the places in the program.
#include <algorithm>

#include "schedule/interpreter.h"

namespace trireme::schedule {
namespace {

constexpr std::int64_t kSpaceSize = std::int64_t{1} << 40;

}  // namespace

std::int64_t Interpreter::kept_bytes(int group, std::int64_t element_bytes, bool sharded) const {
  const std::int64_t numel = setting_.chain.groups[group].numel;
  return (sharded ? numel / setting_.options.shard_ranks() : numel) * element_bytes;
}

// What the executor touches through this buffer: sizes come from the chain, not from the schedule.
std::int64_t Interpreter::true_bytes(const Instruction& instruction, const Buffer& buffer) const {
  const Options& options = setting_.options;
  const auto& units = setting_.chain.units;
  const int group = instruction.group >= 0 ? instruction.group : buffer.group;
  const GroupSpec none, &spec = group >= 0 ? setting_.chain.groups[group] : none;
  switch (buffer.kind) {
    case BufferKind::weights:
    case BufferKind::gathered: return kept_bytes(buffer.group, options.compute_element_bytes, false);
    case BufferKind::weight_slice: return kept_bytes(buffer.group, options.compute_element_bytes, true);
    case BufferKind::weight_copy:
      return kept_bytes(buffer.group, options.compute_element_bytes, spec.shards_optimizer || spec.shards_parameters);
    case BufferKind::sum_copy: return kept_bytes(group, options.accumulator_element_bytes, spec.shards_optimizer);
    case BufferKind::state: {
      const std::int64_t master = options.weights_are_master && spec.state_on_host && !spec.weights_on_host ? 4 : 0;
      return kept_bytes(group, options.state_bytes_per_element + master, spec.shards_optimizer);
    }
    case BufferKind::snapshot:
      return kept_bytes(group, options.state_bytes_per_element + (options.weights_are_master ? 4 : 0), true);
    case BufferKind::accumulator: return kept_bytes(group, options.accumulator_element_bytes, spec.shards_gradients);
    case BufferKind::gradient_slot: return kept_bytes(group, options.compute_element_bytes, false);
    case BufferKind::token_count:
    case BufferKind::gradient_norm: return 16;
    case BufferKind::losses: return buffer.micro_batch < 0 ? 16 * options.num_micro_batches : 16;
    case BufferKind::activation:
    case BufferKind::recomputed_output:
    case BufferKind::boundary_gradient: return units[buffer.unit].output_bytes;
    case BufferKind::saved: return units[buffer.unit].saved_bytes;
    case BufferKind::workspace:
      if (instruction.unit < 0) return 0;  // a damaged program's: nobody's workspace
      if (instruction.op == Op::forward) {
        const UnitSpec& unit = units[instruction.unit];
        const bool has_backward = std::any_of(units.begin(), units.begin() + instruction.unit + 1,
                                              [](const UnitSpec& other) { return !other.gradients.empty(); });
        const bool keeps = !unit.recompute && has_backward;
        return unit.forward_workspace_bytes + (keeps ? 0 : unit.saved_bytes);
      }
      return instruction.op == Op::recompute ? units[instruction.unit].forward_workspace_bytes
                                             : units[instruction.unit].backward_workspace_bytes;
  }
  return 0;
}

Interpreter::Range Interpreter::place(const Rank& rank, int buffer, std::int64_t bytes, bool& broken) {
  if (buffer < 0) {
    broken = true;
    return {};
  }
  const Buffer& place = rank.program->buffers[buffer];
  const Program& program = *rank.program;
  const std::int64_t spaces[] = {program.arena_bytes, program.persistent_bytes, program.host_arena_bytes,
                                 program.host_persistent_bytes};
  const int space = (is_persistent(place.kind) ? 1 : 0) + (place.tier == Tier::host ? 2 : 0);
  broken = broken || place.offset + bytes > spaces[space];
  const std::int64_t begin = place.offset + space * kSpaceSize;
  return {begin, begin + bytes};
}

void Interpreter::resolve_unit(const Rank& rank, Node& node) const {
  const Instruction& instruction = *node.instruction;
  const auto kind = [&](int id) { return rank.program->buffers[id].kind; };
  const auto range = [&](int id) {
    return place(rank, id, true_bytes(instruction, rank.program->buffers[id]), node.broken);
  };
  const auto is_gradient = [&](int id) {
    return kind(id) == BufferKind::gradient_slot || kind(id) == BufferKind::accumulator;
  };
  for (const int id : instruction.reads) {
    if (!is_gradient(id)) node.inputs.push_back(range(id));
  }
  std::size_t gradient = 0;
  for (const int id : instruction.writes) {
    bool in_place = false;
    if (is_gradient(id)) {
      in_place = gradient < instruction.adds.size() && instruction.adds[gradient];
      ++gradient;
    }
    node.outputs.push_back({range(id), in_place});
  }
}

void Interpreter::resolve_sum(const Rank& rank, Node& node) const {
  const Instruction& instruction = *node.instruction;
  const std::int64_t numel = setting_.chain.groups[instruction.group].numel;
  const int slot = find(*rank.program, instruction.reads, BufferKind::gradient_slot);
  const int accumulator = find(*rank.program, instruction.writes, BufferKind::accumulator);
  node.inputs.push_back(place(rank, slot, numel * setting_.options.compute_element_bytes, node.broken));
  node.outputs.push_back(
      {place(rank, accumulator, numel * setting_.options.accumulator_element_bytes, node.broken), !instruction.first});
}

std::vector<Interpreter::Range> Interpreter::slices(const Rank& rank, int buffer, std::int64_t element_bytes,
                                                    bool sharded, Node& node) const {
  const int count = sharded ? 1 : setting_.options.shard_ranks();
  const std::int64_t slice = node.instruction->element_count / setting_.options.shard_ranks() * element_bytes;
  const Range whole = place(rank, buffer, slice * count, node.broken);
  std::vector<Range> ranges;
  for (int i = 0; i < count; ++i) ranges.push_back({whole.begin + i * slice, whole.begin + (i + 1) * slice});
  return ranges;
}

// Inputs and outputs slice by slice.
void Interpreter::resolve_reduction(const Rank& rank, Node& node) const {
  const Instruction& instruction = *node.instruction;
  const Options& options = setting_.options;
  const GroupSpec& spec = setting_.chain.groups[instruction.group];
  const int own = options.slice_of(rank.program->rank);
  const int accumulator = find(*rank.program, instruction.writes, BufferKind::accumulator);
  const std::vector<Range> sums =
      slices(rank, accumulator, options.accumulator_element_bytes, spec.shards_gradients, node);
  const Range own_sum = sums[spec.shards_gradients ? 0 : own];
  switch (instruction.reduce) {
    case ReduceKind::reduce_scatter: {
      const int slot = find(*rank.program, instruction.reads, BufferKind::gradient_slot);
      if (own < instruction.participants) {
        node.inputs = slices(rank, slot, options.compute_element_bytes, false, node);
      }
      if (instruction.participants > 0) node.outputs.push_back({own_sum, !instruction.first});
      return;
    }
    case ReduceKind::scatter_sums:
      for (int i = 0; i < static_cast<int>(sums.size()); ++i) {
        if (i != own) node.inputs.push_back(sums[i]);
      }
      node.outputs.push_back({own_sum, true});
      return;
    case ReduceKind::sum_replicas: node.outputs.push_back({own_sum, true}); return;
    default: break;
  }
  for (int i = 0; i < static_cast<int>(sums.size()); ++i) {
    node.outputs.push_back({sums[i], instruction.reduce == ReduceKind::all_reduce || i == own});
  }
}

void Interpreter::resolve_gather(const Rank& rank, Node& node) const {
  const Instruction& instruction = *node.instruction;
  const Options& options = setting_.options;
  const int own = options.slice_of(rank.program->rank);
  const bool sharded = setting_.chain.groups[instruction.group].shards_parameters;
  const int target = find(*rank.program, instruction.writes, sharded ? BufferKind::gathered : BufferKind::weights);
  const std::vector<Range> whole = slices(rank, target, options.compute_element_bytes, false, node);
  for (int i = 0; i < static_cast<int>(whole.size()); ++i) node.outputs.push_back({whole[i], !sharded && i == own});
  if (!sharded) return;
  const bool fetched = setting_.chain.groups[instruction.group].weights_on_host;
  const int slice =
      find(*rank.program, instruction.reads, fetched ? BufferKind::weight_copy : BufferKind::weight_slice);
  node.inputs = slices(rank, slice, options.compute_element_bytes, true, node);
}

// A persistent buffer; of a whole one whose slices are updated, only this rank's slice.
Interpreter::Range Interpreter::updated(const Rank& rank, int id, bool& broken) const {
  const Options& options = setting_.options;
  const Buffer& buffer = rank.program->buffers[id];
  const Range all = place(rank, id, true_bytes({}, buffer), broken);
  const bool whole = buffer.group >= 0 && setting_.chain.groups[buffer.group].shards_optimizer &&
                     (buffer.kind == BufferKind::weights || (buffer.kind == BufferKind::accumulator &&
                                                             !setting_.chain.groups[buffer.group].shards_gradients));
  if (!whole) return all;
  const std::int64_t slice = (all.end - all.begin) / options.shard_ranks();
  const std::int64_t begin = all.begin + slice * options.slice_of(rank.program->rank);
  return Range{begin, begin + slice};
}

// NORM, STEP, OFFLOAD, FETCH, SNAPSHOT: of whole buffers whose slices are updated, only this rank's slice.
void Interpreter::resolve_own(const Rank& rank, Node& node) const {
  const Instruction& instruction = *node.instruction;
  const Options& options = setting_.options;
  const auto range = [&](int id) { return updated(rank, id, node.broken); };
  const auto is_in = [](int id, const std::vector<int>& list) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  for (const int id : instruction.reads) {
    if (!is_in(id, instruction.writes)) node.inputs.push_back(range(id));
  }
  for (const int id : instruction.writes) {
    const bool keeps_old = rank.program->buffers[id].kind == BufferKind::weights &&
                           (instruction.op == Op::fetch || !options.weights_are_master);
    const bool is_old_read = is_in(id, instruction.reads) && !keeps_old;
    node.outputs.push_back({range(id), is_old_read});
  }
}

Interpreter::Node Interpreter::resolve(const Rank& rank, const Instruction& instruction) const {
  Node node;
  node.instruction = &instruction;
  switch (instruction.op) {
    case Op::forward:
    case Op::loss:
    case Op::recompute:
    case Op::backward: resolve_unit(rank, node); return node;
    case Op::accumulate: resolve_sum(rank, node); return node;
    case Op::reduce: resolve_reduction(rank, node); return node;
    case Op::gather: resolve_gather(rank, node); return node;
    case Op::norm:
    case Op::step:
    case Op::offload:
    case Op::fetch:
    case Op::snapshot: resolve_own(rank, node); return node;
    default: break;
  }
  const auto range = [&](int id) {
    return place(rank, id, true_bytes(instruction, rank.program->buffers[id]), node.broken);
  };
  const auto is_in = [](int id, const std::vector<int>& list) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  for (const int id : instruction.reads) {
    if (!is_in(id, instruction.writes)) node.inputs.push_back(range(id));
  }
  for (const int id : instruction.writes) node.outputs.push_back({range(id), is_in(id, instruction.reads)});
  return node;
}

// Whether it is part of what a pass begins or ends with.
bool Interpreter::is_kept(const Buffer& buffer) const {
  const Pass pass = setting_.options.pass;
  const bool sums = buffer.kind == BufferKind::accumulator || buffer.kind == BufferKind::sum_copy;
  if (sums) return begins_with_steps(pass) || leaves_steps(pass);
  return is_persistent(buffer.kind) && (buffer.kind != BufferKind::losses || buffer.micro_batch < 0);
}

// By the chain, whatever the instructions say.
void Interpreter::resolve_snapshots(Rank& rank, bool& broken) const {
  const Options& options = setting_.options;
  for (int group = 0; group < static_cast<int>(setting_.chain.groups.size()); ++group) {
    const GroupSpec& spec = setting_.chain.groups[group];
    if (!spec.trainable) continue;
    const bool masters_apart = !options.weights_are_master || (spec.state_on_host && !spec.weights_on_host);
    Copied& snapshot = rank.snapshots.emplace_back();
    for (int id = 0; id < static_cast<int>(rank.program->buffers.size()); ++id) {
      const Buffer& buffer = rank.program->buffers[id];
      if (buffer.group != group) continue;
      const bool is_master = buffer.kind == BufferKind::weights || buffer.kind == BufferKind::weight_slice;
      if (buffer.kind == BufferKind::snapshot) snapshot.copy = updated(rank, id, broken);
      if (buffer.kind == BufferKind::state || (is_master && !masters_apart)) {
        snapshot.state.insert(is_master ? snapshot.state.end() : snapshot.state.begin(), updated(rank, id, broken));
      }
    }
  }
}

void Interpreter::resolve(Rank& rank) const {
  rank.lanes.resize(kNumLanes);
  for (const Instruction& instruction : rank.program->instructions) {
    rank.lanes[static_cast<std::size_t>(instruction.lane)].push_back(static_cast<int>(rank.nodes.size()));
    rank.nodes.push_back(resolve(rank, instruction));
  }
  bool broken = false;
  for (int id = 0; id < static_cast<int>(rank.program->buffers.size()); ++id) {
    const Buffer& buffer = rank.program->buffers[id];
    if (!is_kept(buffer)) continue;
    const bool sums = buffer.kind == BufferKind::accumulator || buffer.kind == BufferKind::sum_copy;
    rank.kept.push_back(sums ? updated(rank, id, broken) : place(rank, id, true_bytes({}, buffer), broken));
    const bool of_slice =
        buffer.kind == BufferKind::weight_slice || buffer.kind == BufferKind::snapshot ||
        ((buffer.kind == BufferKind::state || sums) && setting_.chain.groups[buffer.group].shards_optimizer);
    rank.is_common.push_back(!of_slice);
  }
  if (setting_.options.snapshots == Snapshots::taken) resolve_snapshots(rank, broken);
  if (broken) rank.nodes.front().broken = true;
  make_cells(rank);
  fill(rank);
}

// Cuts memory wherever a range begins or ends, and turns the ranges' bytes into cells.
void Interpreter::make_cells(Rank& rank) {
  std::vector<Range*> ranges;
  for (Node& node : rank.nodes) {
    for (Range& range : node.inputs) ranges.push_back(&range);
    for (Output& output : node.outputs) ranges.push_back(&output.range);
  }
  for (Range& range : rank.kept) ranges.push_back(&range);
  for (Copied& snapshot : rank.snapshots) {
    ranges.push_back(&snapshot.copy);
    for (Range& range : snapshot.state) ranges.push_back(&range);
  }
  for (const Range* range : ranges) {
    rank.borders.push_back(range->begin);
    rank.borders.push_back(range->end);
  }
  std::sort(rank.borders.begin(), rank.borders.end());
  rank.borders.erase(std::unique(rank.borders.begin(), rank.borders.end()), rank.borders.end());
  const auto cell = [&](std::int64_t border) {
    return std::lower_bound(rank.borders.begin(), rank.borders.end(), border) - rank.borders.begin();
  };
  for (Range* range : ranges) *range = {cell(range->begin), cell(range->end)};
}

}  // namespace trireme::schedule
