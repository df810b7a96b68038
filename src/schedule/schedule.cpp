#include "schedule/schedule.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::schedule {
namespace {

constexpr std::array<std::string_view, 15> kOpNames = {"count",     "gather",   "release",    "forward", "loss",
                                                       "recompute", "backward", "accumulate", "reduce",  "norm",
                                                       "report",    "step",     "offload",    "fetch",   "snapshot"};
constexpr std::array<std::string_view, 6> kReduceNames = {"reduce",     "reduce_scatter", "scatter_sums",
                                                          "all_gather", "all_reduce",     "sum_replicas"};
constexpr std::array<std::string_view, 17> kBufferNames = {
    "weights",           "weight_slice",  "state",      "accumulator",   "sum_copy",
    "snapshot",          "token_count",   "losses",     "gradient_norm", "gathered",
    "weight_copy",       "gradient_slot", "activation", "saved",         "boundary_gradient",
    "recomputed_output", "workspace"};

// Names are for messages about broken programs too, so an index may be anything.
template <class Spec>
std::string name_of(const std::vector<Spec>& specs, int index) {
  const bool known = index >= 0 && index < static_cast<int>(specs.size());
  return known ? specs[index].name : "#" + std::to_string(index);
}

template <std::size_t N, class Enum>
std::string_view name_of(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace

bool is_collective(const Instruction& instruction) {
  return instruction.op == Op::count || instruction.op == Op::gather || instruction.op == Op::reduce ||
         instruction.op == Op::report;
}

std::int64_t space_bytes(const Program& program, const Buffer& buffer) {
  if (buffer.tier == Tier::host) {
    return is_persistent(buffer.kind) ? program.host_persistent_bytes : program.host_arena_bytes;
  }
  return is_persistent(buffer.kind) ? program.persistent_bytes : program.arena_bytes;
}

bool uses(const Program& program, Lane lane) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [&](const Instruction& instruction) { return instruction.lane == lane; });
}

int find(const Program& program, std::span<const int> list, BufferKind kind, int group) {
  for (const int id : list) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.kind == kind && (group < 0 || buffer.group == group)) return id;
  }
  return -1;
}

std::string to_string(const Instruction& instruction, const ChainSpec& chain) {
  std::string text(instruction.op == Op::reduce ? name_of(kReduceNames, instruction.reduce)
                                                : name_of(kOpNames, instruction.op));
  if (instruction.unit >= 0) text += " " + name_of(chain.units, instruction.unit);
  if (instruction.group >= 0) text += " " + name_of(chain.groups, instruction.group);
  if (instruction.micro_batch >= 0) text += " m" + std::to_string(instruction.micro_batch);
  if (instruction.reduce == ReduceKind::reduce_scatter) {
    text += " round " + std::to_string(instruction.round) + " of " + std::to_string(instruction.participants);
  }
  if (instruction.first) text += " first";
  for (std::size_t i = 0; i < instruction.adds.size(); ++i) {
    if (!instruction.adds[i]) continue;
    const bool known = instruction.unit >= 0 && instruction.unit < static_cast<int>(chain.units.size()) &&
                       i < chain.units[instruction.unit].gradients.size();
    text += " adds " + (known ? name_of(chain.groups, chain.units[instruction.unit].gradients[i]) : std::to_string(i));
  }
  return text;
}

std::string to_string(const Buffer& buffer, const ChainSpec& chain) {
  std::string text(buffer.tier == Tier::host ? "host " : "");
  text += name_of(kBufferNames, buffer.kind);
  if (buffer.unit >= 0) text += " " + name_of(chain.units, buffer.unit);
  if (buffer.group >= 0) text += " " + name_of(chain.groups, buffer.group);
  if (buffer.micro_batch >= 0) text += " m" + std::to_string(buffer.micro_batch);
  return text;
}

}  // namespace trireme::schedule
