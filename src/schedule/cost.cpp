#include "schedule/cost.h"

#include <algorithm>

#include "layout/mesh.h"

namespace trireme::schedule {
namespace {

constexpr std::int64_t kWordBytes = 8;  // of what count and report exchange

std::int64_t scope_size(const Options& options, Scope scope) {
  if (scope == Scope::shards) return options.shard_ranks();
  if (scope == Scope::replicas) return options.replicas;
  return options.world_size;
}

int phases(const Instruction& instruction) {
  return instruction.reduce == ReduceKind::all_reduce || instruction.reduce == ReduceKind::sum_replicas ? 2 : 1;
}

// Of a slice of what is summed or gathered.
std::int64_t slice_bytes(const ChainSpec& chain, const Options& options, const Instruction& instruction) {
  const std::int64_t ranks = scope_size(options, instruction.scope);
  std::int64_t numel = chain.groups[instruction.group].numel;
  if (instruction.reduce == ReduceKind::sum_replicas) numel /= options.shard_ranks();
  const std::int64_t element_bytes = instruction.op == Op::gather ? options.compute_element_bytes
                                     : instruction.reduce == ReduceKind::reduce_scatter
                                         ? options.wire_element_bytes
                                         : options.accumulator_element_bytes;
  return (numel + ranks - 1) / ranks * element_bytes;
}

// Elements of a group that this rank sums up and updates.
double updated_numel(const ChainSpec& chain, const Options& options, int group) {
  const GroupSpec& spec = chain.groups[group];
  return static_cast<double>(spec.numel) / (spec.shards_optimizer ? options.shard_ranks() : 1);
}

double norm_bytes(const ChainSpec& chain, const Options& options) {
  double bytes = 0;
  for (int group = 0; group < static_cast<int>(chain.groups.size()); ++group) {
    if (!chain.groups[group].trainable) continue;
    bytes += updated_numel(chain, options, group) * static_cast<double>(options.accumulator_element_bytes);
  }
  return bytes;
}

double step_bytes(const ChainSpec& chain, const Options& options, int group) {
  const std::int64_t element = options.accumulator_element_bytes + 2 * options.state_bytes(chain.groups[group]) +
                               (options.has_own_master(chain.groups[group]) ? 1 : 2) * options.compute_element_bytes;
  return updated_numel(chain, options, group) * static_cast<double>(element);
}

// Of what this rank updates or keeps; of whole weights of which it fetches a slice, that slice.
double copied_bytes(const Program& program, const Instruction& copy) {
  if (copy.op == Op::snapshot) return static_cast<double>(program.buffers[copy.writes.front()].bytes);
  std::int64_t bytes = program.buffers[copy.reads.front()].bytes;
  for (const int buffer : copy.writes) bytes = std::min(bytes, program.buffers[buffer].bytes);
  return static_cast<double>(bytes);
}

double touched_bytes(const Program& program, const Instruction& instruction) {
  std::int64_t bytes = 0;
  for (const int buffer : instruction.reads) bytes += program.buffers[buffer].bytes;
  for (const int buffer : instruction.writes) bytes += program.buffers[buffer].bytes;
  return static_cast<double>(bytes);
}

}  // namespace

int report_words(int rounds) {
  return rounds + 4;
}

std::int64_t wire_bytes(const ChainSpec& chain, const Options& options, const Instruction& instruction) {
  const std::int64_t others = scope_size(options, instruction.scope) - 1;
  if (!is_collective(instruction) || instruction.participants == 0) return 0;
  if (instruction.op == Op::count) return others * kWordBytes;
  if (instruction.op == Op::report) {
    const int rounds = MicroBatchSplit{options.num_micro_batches, options.world_size}.rounds();
    return others * report_words(rounds) * kWordBytes;
  }
  return phases(instruction) * others * slice_bytes(chain, options, instruction);
}

double seconds(const ChainSpec& chain, const Options& options, const Program& program, const Instruction& instruction,
               const Rates& rates) {
  const std::int64_t element = options.compute_element_bytes;
  const auto unit_seconds = [&](const UnitSpec& unit, double flops, double attention, double bytes) {
    const double computing = (flops - attention) / rates.product_flops_per_s(element, unit.smallest_side) +
                             attention / rates.attention_flops_per_s(element);
    const double moving = bytes / rates.bytes_moved_per_s;
    return rates.of_device ? computing + moving : std::max(computing, moving);
  };
  switch (instruction.op) {
    case Op::forward:
    case Op::recompute: {
      const UnitSpec& unit = chain.units[instruction.unit];
      return unit_seconds(unit, unit.forward_flops, unit.forward_attention_flops, unit.forward_bytes_moved);
    }
    case Op::loss:
    case Op::backward: {
      const UnitSpec& unit = chain.units[instruction.unit];
      return unit_seconds(unit, unit.backward_flops, unit.backward_attention_flops, unit.backward_bytes_moved);
    }
    case Op::accumulate: return touched_bytes(program, instruction) / rates.bytes_moved_per_s;
    case Op::norm: return norm_bytes(chain, options) / rates.bytes_moved_per_s;
    case Op::step: {
      const bool on_host = chain.groups[instruction.group].state_on_host;
      return step_bytes(chain, options, instruction.group) / rates.update_bytes_per_s(on_host);
    }
    case Op::release: return 0;
    case Op::offload:
    case Op::fetch:
    case Op::snapshot: return copied_bytes(program, instruction) / rates.copy_bytes_per_s();
    case Op::count:
    case Op::gather:
    case Op::reduce:
    case Op::report: break;
  }
  const std::int64_t bytes = wire_bytes(chain, options, instruction);
  if (bytes == 0) return 0;
  const bool runs_beside_units = instruction.op == Op::gather || instruction.op == Op::reduce;
  const double speed = runs_beside_units ? rates.gradient_bytes_per_s() : rates.collective_bytes_per_s;
  return phases(instruction) * rates.collective_latency_s + static_cast<double>(bytes) / speed;
}

}  // namespace trireme::schedule
