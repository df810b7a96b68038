// Runs what interpreter_places.cpp has resolved.
#include "schedule/interpreter.h"

#include <algorithm>

namespace trireme::schedule {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 32);
}

}  // namespace

Interpreter::Interpreter(const Case& setting, std::span<const Program> programs) : setting_(setting) {
  for (const Program& program : programs) {
    Rank& rank = ranks_.emplace_back();
    rank.program = &program;
    resolve(rank);
  }
}

// Weights, state and pending sums start equal on all ranks that hold the same of them; everything else holds what was
// there before.
void Interpreter::fill(Rank& rank) const {
  rank.cells.resize(rank.borders.size());
  for (std::size_t i = 0; i < rank.cells.size(); ++i) rank.cells[i] = {1, rank.borders[i]};
  std::size_t kept = 0;
  for (const Buffer& buffer : rank.program->buffers) {
    if (!is_kept(buffer)) continue;
    const bool common = rank.is_common[kept];
    const Range range = rank.kept[kept++];
    const bool starts = buffer.kind == BufferKind::weights || buffer.kind == BufferKind::weight_slice ||
                        buffer.kind == BufferKind::state || begins_with_steps(setting_.options.pass);
    const int slice = common ? 0 : 1 + setting_.options.slice_of(rank.program->rank);
    if (starts) write(rank, range, mix(mix(static_cast<std::uint64_t>(buffer.kind) + 2, buffer.group), slice));
  }
  rank.initial = rank.cells;
}

// Independent of how the range is cut into cells.
std::uint64_t Interpreter::read(const Rank& rank, Range range) {
  std::uint64_t hash = 7;
  for (std::int64_t cell = range.begin; cell < range.end;) {
    const Cell run = rank.cells[cell];
    const std::int64_t begin = rank.borders[cell];
    do ++cell;
    while (cell < range.end && rank.cells[cell].value == run.value &&
           rank.cells[cell].position == run.position + rank.borders[cell] - begin);
    hash = mix(mix(mix(hash, run.value), run.position), rank.borders[cell] - begin);
  }
  return hash;
}

void Interpreter::write(Rank& rank, Range range, std::uint64_t value) {
  for (std::int64_t cell = range.begin; cell < range.end; ++cell) {
    rank.cells[cell] = {value, rank.borders[cell] - rank.borders[range.begin]};
  }
}

bool Interpreter::holds(const Rank& rank, Range range, std::uint64_t value) {
  for (std::int64_t cell = range.begin; cell < range.end; ++cell) {
    if (rank.cells[cell].value != value) return false;
  }
  return true;
}

void Interpreter::reset() {
  for (Rank& rank : ranks_) {
    rank.cells = rank.initial;
    rank.next.assign(kNumLanes, 0);
    rank.running.assign(kNumLanes, false);
    rank.num_meetings = 0;
    for (Node& node : rank.nodes) node.done = false;
  }
  meetings_.clear();
  garbage_ = std::uint64_t{1} << 63;
  failure_.clear();
}

bool Interpreter::can_begin(const Rank& rank, std::size_t lane) const {
  if (rank.running[lane] || rank.next[lane] == rank.lanes[lane].size()) return false;
  const auto& waits = rank.nodes[rank.lanes[lane][rank.next[lane]]].instruction->waits;
  return std::all_of(waits.begin(), waits.end(), [&](int wait) {
    return wait >= 0 && wait < static_cast<int>(rank.nodes.size()) && rank.nodes[wait].done;
  });
}

bool Interpreter::can_end(const Rank& rank, std::size_t lane) const {
  if (!rank.running[lane]) return false;
  const Node& node = rank.nodes[rank.lanes[lane][rank.next[lane]]];
  if (!is_collective(*node.instruction)) return true;
  const std::vector<const Node*> all = peers(rank, node);
  return std::find(all.begin(), all.end(), nullptr) == all.end();
}

void Interpreter::begin(Rank& rank, std::size_t lane) {
  Node& node = rank.nodes[rank.lanes[lane][rank.next[lane]]];
  rank.running[lane] = true;
  if (node.broken) failure_ = "out of bounds";
  node.seen.clear();
  for (const Range range : node.inputs) node.seen.push_back(read(rank, range));
  for (Output& output : node.outputs) output.old = output.in_place ? read(rank, output.range) : 0;
  for (Output& output : node.outputs) {
    output.garbage = ++garbage_;
    write(rank, output.range, output.garbage);
  }
  if (!is_collective(*node.instruction)) return;
  node.meeting = static_cast<int>(rank.num_meetings++);
  if (meetings_.size() < rank.num_meetings) meetings_.emplace_back(ranks_.size(), nullptr);
  meetings_[node.meeting][rank.program->rank] = &node;
  const std::vector<const Node*> all = peers(rank, node);
  if (std::find(all.begin(), all.end(), nullptr) == all.end()) check_meeting(all);
}

std::vector<const Interpreter::Node*> Interpreter::peers(const Rank& rank, const Node& node) const {
  const Options& options = setting_.options;
  const int own = rank.program->rank;
  std::vector<const Node*> all;
  for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
    const bool same_replica = options.replica_of(other) == options.replica_of(own);
    const bool same_slice = options.slice_of(other) == options.slice_of(own);
    const Scope scope = node.instruction->scope;
    if ((scope == Scope::shards && !same_replica) || (scope == Scope::replicas && !same_slice)) continue;
    all.push_back(meetings_[node.meeting][other]);
  }
  return all;
}

void Interpreter::check_meeting(const std::vector<const Node*>& meeting) {
  const Instruction& first = *meeting.front()->instruction;
  for (const Node* node : meeting) {
    const Instruction& other = *node->instruction;
    if (first.op != other.op || first.reduce != other.reduce || first.scope != other.scope ||
        first.element_count != other.element_count || first.participants != other.participants) {
      failure_ = "collectives do not match";
    }
  }
}

void Interpreter::end(Rank& rank, std::size_t lane) {
  Node& node = rank.nodes[rank.lanes[lane][rank.next[lane]]];
  bool disturbed = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) disturbed |= read(rank, node.inputs[i]) != node.seen[i];
  for (const Output& output : node.outputs) disturbed |= !holds(rank, output.range, output.garbage);
  const bool is_void = node.instruction->op == Op::release;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    write(rank, node.outputs[i].range, disturbed || is_void ? ++garbage_ : result(rank, node, i));
  }
  node.done = true;
  rank.running[lane] = false;
  ++rank.next[lane];
}

std::uint64_t Interpreter::result(const Rank& rank, const Node& node, std::size_t output) const {
  const Instruction& instruction = *node.instruction;
  std::uint64_t hash = mix(11, static_cast<std::uint64_t>(instruction.op));
  if (instruction.op == Op::reduce || instruction.op == Op::gather) return reduced(rank, node, output);
  if (is_collective(instruction)) {
    for (const Node* peer : peers(rank, node)) {
      for (const std::uint64_t seen : peer->seen) hash = mix(hash, seen);
      for (const Output& other : peer->outputs) hash = mix(hash, other.old);
    }
    return mix(hash, output);
  }
  const bool copies = instruction.op == Op::offload || instruction.op == Op::fetch;
  if (copies && !node.seen.empty()) return node.seen.front();
  if (instruction.op == Op::snapshot) return copied(node.seen);
  const bool of_unit = instruction.unit >= 0;
  if (of_unit) hash = mix(mix(hash, instruction.unit), instruction.micro_batch);
  if (instruction.op == Op::step) hash = mix(hash, instruction.group);
  for (const std::uint64_t seen : node.seen) hash = mix(hash, seen);
  // A unit's outputs come from its inputs, and a slot also from what it adds to; a step's outputs from all.
  for (const Output& other : node.outputs) {
    if (other.in_place && (!of_unit || &other == &node.outputs[output])) hash = mix(hash, other.old);
  }
  return mix(hash, output);
}

std::uint64_t Interpreter::copied(const std::vector<std::uint64_t>& state) {
  std::uint64_t hash = 19;
  for (const std::uint64_t part : state) hash = mix(hash, part);
  return hash;
}

std::uint64_t Interpreter::reduced(const Rank& rank, const Node& node, std::size_t output) const {
  const Instruction& instruction = *node.instruction;
  const std::vector<const Node*> all = peers(rank, node);
  const auto own = static_cast<std::size_t>(setting_.options.slice_of(rank.program->rank));
  // Ranks whose damaged programs meet for different groups find nothing there.
  const auto seen = [&](std::size_t peer, std::size_t input) {
    return peer < all.size() && input < all[peer]->seen.size() ? all[peer]->seen[input] : std::uint64_t{0};
  };
  const auto old = [&](std::size_t peer, std::size_t at) {
    return peer < all.size() && at < all[peer]->outputs.size() ? all[peer]->outputs[at].old : std::uint64_t{0};
  };
  std::uint64_t hash = 13;
  if (instruction.op == Op::gather) {
    const bool sharded = setting_.chain.groups[instruction.group].shards_parameters;
    return sharded ? seen(output, 0) : old(output, output);
  }
  switch (instruction.reduce) {
    case ReduceKind::reduce_scatter:
      if (!instruction.first) hash = mix(hash, node.outputs[0].old);
      for (int i = 0; i < instruction.participants && i < static_cast<int>(all.size()); ++i) {
        hash = mix(hash, seen(static_cast<std::size_t>(i), own));
      }
      return hash;
    case ReduceKind::scatter_sums:
      for (std::size_t i = 0; i < all.size(); ++i) {
        hash = mix(hash, i == own ? node.outputs[0].old : seen(i, own < i ? own : own - 1));
      }
      return hash;
    case ReduceKind::all_gather: return old(output, output);
    case ReduceKind::all_reduce:
      for (std::size_t i = 0; i < all.size(); ++i) hash = mix(hash, old(i, output));
      return hash;
    case ReduceKind::sum_replicas:
      for (std::size_t i = 0; i < all.size(); ++i) hash = mix(hash, old(i, 0));
      return hash;
    case ReduceKind::none: break;
  }
  return hash;
}

Outcome Interpreter::run(std::uint64_t seed) {
  reset();
  Dice dice(seed);
  struct Event {
    std::size_t rank, lane;
    bool begins;
    int weight;
  };
  // Lanes of very different speeds, so that one gets far ahead of another.
  std::vector<int> speeds(ranks_.size() * kNumLanes);
  for (int& speed : speeds) speed = 1 << (4 * dice.below(3));
  std::vector<Event> events;
  while (failure_.empty()) {
    events.clear();
    int total = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
        const bool begins = can_begin(ranks_[rank], lane);
        if (!begins && !can_end(ranks_[rank], lane)) continue;
        events.push_back({rank, lane, begins, speeds[rank * kNumLanes + lane]});
        total += events.back().weight;
      }
    }
    if (events.empty()) break;
    int draw = dice.below(total);
    std::size_t pick = 0;
    while (draw >= events[pick].weight) draw -= events[pick++].weight;
    Rank& rank = ranks_[events[pick].rank];
    events[pick].begins ? begin(rank, events[pick].lane) : end(rank, events[pick].lane);
  }
  Outcome outcome{failure_, {}, {}, true};
  for (const Rank& rank : ranks_) {
    const bool finished = std::all_of(rank.nodes.begin(), rank.nodes.end(), [](const Node& node) { return node.done; });
    if (failure_.empty() && !finished) outcome.failure = "hang";
    std::uint64_t hash = 17, common = 17;
    for (std::size_t i = 0; i < rank.kept.size(); ++i) {
      const std::uint64_t value = read(rank, rank.kept[i]);
      hash = mix(hash, value);
      if (rank.is_common[i]) common = mix(common, value);
    }
    for (const Copied& snapshot : rank.snapshots) {
      std::vector<std::uint64_t> state;
      for (const Range range : snapshot.state) state.push_back(read(rank, range));
      outcome.snapshots_hold &= holds(rank, snapshot.copy, copied(state));
    }
    outcome.end.push_back(hash);
    outcome.common.push_back(common);
  }
  return outcome;
}

}  // namespace trireme::schedule
