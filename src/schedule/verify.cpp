#include "schedule/verify.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "schedule/place.h"
#include "schedule/verify_parts.h"

namespace trireme::schedule {
namespace {

constexpr std::size_t kMaxFindings = 16;  // of one rank

bool in_range(int index, std::size_t count) {
  return index >= 0 && index < static_cast<int>(count);
}

void check_buffers(Inspection& inspection) {
  const Program& program = inspection.program;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    const Buffer& buffer = program.buffers[id];
    const std::string name = inspection.buffer_name(id);
    if (buffer.kind > BufferKind::workspace) inspection.report(-1, name + " has no known kind");
    if (buffer.tier > Tier::host) {
      inspection.report(-1, name + " is on no known tier");
      continue;
    }
    const std::int64_t space = space_bytes(program, buffer);
    if (buffer.bytes <= 0 || buffer.offset < 0 || buffer.offset > space || buffer.bytes > space - buffer.offset) {
      inspection.report(-1, name + " of " + std::to_string(buffer.bytes) + " bytes at " +
                                std::to_string(buffer.offset) + " lies outside its space of " + std::to_string(space));
    }
    if (buffer.offset % kPlaceAlignment != 0) {
      inspection.report(-1, name + " at " + std::to_string(buffer.offset) + " is not aligned");
    }
  }
}

// What outlives the pass is all there, once, in its size and in places of its own: other passes count on it.
void check_persistent(Inspection& inspection) {
  const Program& program = inspection.program;
  const auto key = [](const Buffer& b) { return std::tuple(b.tier, b.kind, b.group, b.micro_batch, b.bytes); };
  std::vector<std::tuple<Tier, BufferKind, int, int, std::int64_t>> found, expected;
  std::vector<int> by_place;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    if (!is_persistent(program.buffers[id].kind)) continue;
    found.push_back(key(program.buffers[id]));
    by_place.push_back(id);
  }
  for (const Buffer& buffer : expected_persistent(inspection.chain, inspection.options, inspection.rank)) {
    expected.push_back(key(buffer));
  }
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  if (found != expected) inspection.report(-1, "the buffers that outlive the pass are not those of this plan");
  const auto place = [&](int id) { return std::pair(program.buffers[id].tier, program.buffers[id].offset); };
  std::sort(by_place.begin(), by_place.end(), [&](int a, int b) { return place(a) < place(b); });
  for (std::size_t i = 1; i < by_place.size(); ++i) {
    const Buffer& before = program.buffers[by_place[i - 1]];
    if (place(by_place[i]) >= std::pair(before.tier, before.offset + before.bytes)) continue;
    inspection.report(
        -1, inspection.buffer_name(by_place[i]) + " lies in the bytes of " + inspection.buffer_name(by_place[i - 1]));
  }
}

void check_list(Inspection& inspection, int index, const std::vector<int>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!in_range(list[i], inspection.program.buffers.size())) {
      inspection.report(index, inspection.name(index) + " uses buffer " + std::to_string(list[i]) + ", which is none");
    } else if (std::find(list.begin(), list.begin() + i, list[i]) != list.begin() + i) {
      inspection.report(index, inspection.name(index) + " lists " + inspection.buffer_name(list[i]) + " twice");
    }
  }
}

bool is_copy(const Instruction& instruction) {
  return instruction.op == Op::offload || instruction.op == Op::fetch;
}

// Indices that the operation needs are in range; those that it does not need are -1. A copy is of a unit's input or of
// a group.
bool has_valid_indices(const Inspection& inspection, const Instruction& instruction) {
  const Op op = instruction.op;
  const bool of_input = is_copy(instruction) && instruction.group < 0;
  const bool of_unit = op == Op::forward || op == Op::loss || op == Op::recompute || op == Op::backward || of_input;
  const bool of_group = op == Op::accumulate || op == Op::reduce || op == Op::step || op == Op::gather ||
                        op == Op::release || op == Op::snapshot || (is_copy(instruction) && !of_input);
  const bool of_micro_batch = of_unit || op == Op::accumulate;
  const bool of_round = of_micro_batch || op == Op::reduce;
  const auto holds = [](bool needed, int index, std::size_t count) {
    return needed ? in_range(index, count) : index == -1;
  };
  const auto micro_batches = static_cast<std::size_t>(inspection.options.num_micro_batches);
  return op <= Op::snapshot && holds(of_unit, instruction.unit, inspection.chain.units.size()) &&
         holds(of_group, instruction.group, inspection.chain.groups.size()) &&
         holds(of_micro_batch, instruction.micro_batch, micro_batches) &&
         holds(of_round, instruction.round, micro_batches);
}

Lane expected_lane(const Inspection& inspection, const Instruction& instruction) {
  if (is_collective(instruction)) return Lane::reduce;
  const bool on_host = instruction.op == Op::step && in_range(instruction.group, inspection.chain.groups.size()) &&
                       inspection.chain.groups[instruction.group].state_on_host;
  return is_copy(instruction) || instruction.op == Op::snapshot || on_host ? Lane::copy : Lane::compute;
}

void check_instructions(Inspection& inspection) {
  const Program& program = inspection.program;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    const Instruction& instruction = program.instructions[index];
    check_list(inspection, index, instruction.reads);
    check_list(inspection, index, instruction.writes);
    if (!has_valid_indices(inspection, instruction)) {
      inspection.report(index,
                        inspection.name(index) + " names a unit, group, micro-batch or round that it cannot have");
    }
    if (instruction.lane != expected_lane(inspection, instruction)) {
      inspection.report(index, inspection.name(index) + " is on the wrong lane");
    }
    if (is_collective(instruction) == (instruction.scope == Scope::none)) {
      inspection.report(index, inspection.name(index) + " is among the wrong ranks");
    }
    for (const int wait : instruction.waits) {
      if (!in_range(wait, program.instructions.size()) || wait >= index) {
        inspection.report(index, inspection.name(index) + " waits for instruction " + std::to_string(wait) +
                                     ", which is not before it");
      }
    }
  }
}

using Signature = std::tuple<Op, ReduceKind, Scope, int, int, std::int64_t, bool>;

// Indices of a rank's collectives in the order in which it issues them: one lane, so one order.
std::vector<int> list_collectives(const Program& program) {
  std::vector<int> collectives;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    if (is_collective(program.instructions[index])) collectives.push_back(index);
  }
  return collectives;
}

// Participants differ where a replica has no work in a round; check_meaning() looks at them.
Signature signature(const Instruction& collective) {
  return {collective.op,    collective.reduce,        collective.scope, collective.group,
          collective.round, collective.element_count, collective.first};
}

void check_collectives(Inspection& inspection, const Program& leader) {
  const Program& program = inspection.program;
  const std::vector<int> expected = list_collectives(leader), actual = list_collectives(program);
  for (std::size_t i = 0; i < std::max(expected.size(), actual.size()); ++i) {
    if (i >= expected.size()) {
      inspection.report(actual[i], inspection.name(actual[i]) + " is a collective that rank 0 never joins");
      return;
    }
    const Instruction& wanted = leader.instructions[expected[i]];
    if (i >= actual.size()) {
      inspection.report(-1, "rank 0 waits for ever in " + to_string(wanted, inspection.chain));
      return;
    }
    if (signature(wanted) != signature(program.instructions[actual[i]])) {
      inspection.report(actual[i], inspection.name(actual[i]) + " meets rank 0's " +
                                       to_string(wanted, inspection.chain) + " or differs from it in size");
      return;
    }
  }
}

void check_budget(Inspection& inspection, std::int64_t budget_bytes) {
  const std::int64_t bytes = inspection.program.arena_bytes;
  if (budget_bytes > 0 && bytes > budget_bytes) {
    inspection.report(-1, "the arena takes " + std::to_string(bytes) + " bytes of " + std::to_string(budget_bytes));
  }
}

}  // namespace

Inspection::Inspection(const ChainSpec& chain, const Options& options, const Program& program, int rank)
    : chain(chain), options(options), program(program), rank(rank) {}

void Inspection::report(int instruction, const std::string& what) {
  if (findings_.size() < kMaxFindings) findings_.push_back({rank, instruction, what});
}

std::string Inspection::name(int instruction) const {
  return to_string(program.instructions[instruction], chain);
}

std::string Inspection::buffer_name(int buffer) const {
  return to_string(program.buffers[buffer], chain);
}

void check_structure(Inspection& inspection) {
  const Program& program = inspection.program;
  if (program.rank != inspection.rank || program.world_size != inspection.options.world_size) {
    inspection.report(
        -1, "the program is rank " + std::to_string(program.rank) + "'s of " + std::to_string(program.world_size));
  }
  if (program.pass != inspection.options.pass || program.snapshots != inspection.options.snapshots) {
    inspection.report(-1, "the program is another pass of the step");
  }
  check_buffers(inspection);
  check_persistent(inspection);
  check_instructions(inspection);
}

std::vector<Finding> verify_some(const ChainSpec& chain, const Options& options, std::span<const int> ranks,
                                 std::span<const Program> programs, std::int64_t budget_bytes) {
  if (programs.size() != ranks.size()) {
    return {{0, -1, std::to_string(programs.size()) + " programs for " + std::to_string(ranks.size()) + " ranks"}};
  }
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Inspection inspection(chain, options, programs[i], ranks[i]);
    check_structure(inspection);
    if (inspection.clean()) {
      check_budget(inspection, budget_bytes);
      check_meaning(inspection);
      check_order(inspection);
      check_collectives(inspection, programs[0]);
    }
    findings.insert(findings.end(), inspection.findings().begin(), inspection.findings().end());
  }
  return findings;
}

std::vector<Finding> verify(const ChainSpec& chain, const Options& options, std::span<const Program> programs,
                            std::int64_t budget_bytes) {
  std::vector<int> ranks(static_cast<std::size_t>(options.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return verify_some(chain, options, ranks, programs, budget_bytes);
}

}  // namespace trireme::schedule
