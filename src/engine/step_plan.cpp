#include <algorithm>
#include <set>

#include "chain/forward.h"
#include "comm/collectives.h"
#include "engine/chain_description.h"
#include "engine/device_ranks.h"
#include "engine/engine.h"
#include "kernels/device.h"
#include "schedule/lower.h"
#include "schedule/rank_classes.h"
#include "schedule/verify.h"

namespace trireme::engine {

namespace {

std::string owner_of(schedule::BufferKind kind) {
  using enum schedule::BufferKind;
  switch (kind) {
    case weights:
    case weight_slice: return "weights";
    case gathered: return "gathered weights";
    case weight_copy: return "weights between tiers";
    case sum_copy: return "offloaded gradients";
    case snapshot: return "snapshots";
    case state: return "optimizer state";
    case accumulator: return "gradient accumulators";
    case token_count:
    case losses:
    case gradient_norm: return "scalars";
    case gradient_slot: return "gradient slots";
    case activation: return "activations";
    case saved: return "saved for backward";
    case boundary_gradient: return "activation gradients";
    case recomputed_output:
    case workspace: return "workspace";
  }
  return "other";
}

// Of a tier: persistent bytes by owner, and what lies in the arena at the moment when most of it is in use; the rest of
// the arena is what placement could not avoid.
std::map<std::string, std::int64_t> memory_by_owner(const schedule::Program& program, schedule::Tier tier,
                                                    std::int64_t arena_bytes) {
  const int size = static_cast<int>(program.instructions.size());
  std::vector<std::pair<int, int>> life(program.buffers.size(), {size, -1});  // first and last instruction
  for (int i = 0; i < size; ++i) {
    for (const auto* list : {&program.instructions[i].reads, &program.instructions[i].writes}) {
      for (const int buffer : *list) life[buffer] = {std::min(life[buffer].first, i), i};
    }
  }
  const auto is_in_arena = [&](std::size_t buffer) {
    return program.buffers[buffer].tier == tier && !schedule::is_persistent(program.buffers[buffer].kind);
  };
  std::vector<std::int64_t> change(static_cast<std::size_t>(size) + 1, 0);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (!is_in_arena(b) || life[b].second < 0) continue;
    change[life[b].first] += program.buffers[b].bytes;
    change[life[b].second + 1] -= program.buffers[b].bytes;
  }
  std::int64_t live = 0, most = 0;
  int peak = 0;
  for (int i = 0; i < size; ++i) {
    live += change[i];
    if (live > most) {
      most = live;
      peak = i;
    }
  }
  std::map<std::string, std::int64_t> owners;
  std::int64_t persistent = 0;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const schedule::Buffer& buffer = program.buffers[b];
    const bool counts = is_in_arena(b) ? life[b].first <= peak && peak <= life[b].second : buffer.tier == tier;
    if (counts) owners[owner_of(buffer.kind)] += buffer.bytes;
    if (buffer.tier == tier && schedule::is_persistent(buffer.kind)) persistent += buffer.bytes;
  }
  owners["arena beyond its peak use"] = arena_bytes - most;
  const bool on_host = tier == schedule::Tier::host;
  const std::int64_t between =  // the places of what outlives a pass
      (on_host ? program.host_persistent_bytes : program.persistent_bytes) - persistent;
  if (between > 0) owners["scalars"] += between;
  return owners;
}

std::int64_t num_lanes_of(const schedule::Program& program) {
  std::set<schedule::Lane> lanes;
  for (const schedule::Instruction& instruction : program.instructions) lanes.insert(instruction.lane);
  return std::ssize(lanes);
}

// What a step takes outside of the engine's own memory.
void add_besides(const Chain& chain, const EngineOptions& given, StepPlan& plan) {
  std::int64_t library = 0, collectives = 0;
  for (const auto& unit : chain.units) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      library = std::max(library, unit->describe(phase, given.micro_batch).library_bytes);
    }
  }
  const schedule::Options& options = plan.options;
  const comm::ReduceTypes types = reduce_types(chain, given);
  const comm::ReduceTypes sums{types.sum, types.sum, types.sum};
  const auto scratch_bytes = given.device < 0 ? comm::ordered_scratch_bytes : device_scratch_bytes;
  for (const schedule::Instruction& instruction : plan.program().instructions) {
    if (instruction.op != schedule::Op::reduce) continue;
    using enum schedule::ReduceKind;
    const std::int64_t slice = plan.groups[instruction.group].slice_numel();
    const int ranks = instruction.scope == schedule::Scope::replicas ? options.replicas : options.shard_ranks();
    std::int64_t bytes = 0;
    switch (instruction.reduce) {
      case reduce_scatter: bytes = scratch_bytes(types, slice, instruction.participants, ranks); break;
      case scatter_sums:
      case all_reduce: bytes = scratch_bytes(sums, slice, ranks, ranks); break;
      case sum_replicas: bytes = scratch_bytes(sums, (slice + ranks - 1) / ranks, ranks, ranks); break;
      case all_gather:
      case none: break;
    }
    collectives = std::max(collectives, bytes);
  }
  if (kernels::current_device() != nullptr) {
    library += num_lanes_of(plan.program()) * kernels::stream_scratch_bytes();
  }
  if (given.device >= 0 && options.world_size > 1) {
    using enum schedule::Scope;
    const std::int64_t nccl = comm::Nccl::planned_bytes(
        {plan.by_copies(shards) ? 1 : options.shard_ranks(), plan.by_copies(replicas) ? 1 : options.replicas});
    if (nccl > 0) plan.memory_by_owner["NCCL"] = nccl;
  }
  plan.memory_by_owner["library scratch"] = library;
  plan.memory_by_owner["collectives"] = collectives;
  plan.memory_by_owner["tables"] = chain.table_bytes;
}

// A forward pass, and the gathered groups of one unit behind it.
std::int64_t evaluation_bytes(const Chain& chain, const StepPlan& plan, const BatchShape& shape) {
  std::int64_t most = 0;
  for (const schedule::UnitSpec& unit : plan.chain.units) {
    std::int64_t gathered = 0;
    for (const int group : unit.reads) {
      if (!plan.chain.groups[group].is_gathered()) continue;
      gathered += plan.groups[group].numel * size_of(chain.compute_dtype);
    }
    most = std::max(most, gathered);
  }
  return forward_bytes(chain, shape) + most;
}

}  // namespace

std::size_t StepPlan::index_of(schedule::Pass pass, bool takes_snapshot) const {
  const auto found = std::find_if(programs.begin(), programs.end(), [&](const schedule::Program& program) {
    return program.pass == pass && (program.snapshots == schedule::Snapshots::taken) == takes_snapshot;
  });
  TRIREME_CHECK(found != programs.end(), "the plan has no such pass");
  return static_cast<std::size_t>(found - programs.begin());
}

// Shards are neighbours, replicas are not. Ranks of one class have the same program, and so the same arena.
bool StepPlan::by_copies(schedule::Scope scope) const {
  if (schedule::representative_ranks(options).size() > 1) return false;
  const bool everywhere = ranks_in_reach == options.world_size;
  return everywhere || (scope == schedule::Scope::shards && ranks_in_reach % options.shard_ranks() == 0);
}

bool StepPlan::has_sharded_parameters() const {
  return std::any_of(chain.groups.begin(), chain.groups.end(),
                     [](const schedule::GroupSpec& group) { return group.shards_parameters; });
}

bool StepPlan::steps_early() const {
  return !options.steps_wait && std::any_of(chain.groups.begin(), chain.groups.end(),
                                            [](const schedule::GroupSpec& group) { return group.state_on_host; });
}

std::int64_t StepPlan::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [owner, taken] : memory_by_owner) bytes += taken;
  return bytes;
}

bool StepPlan::updates_slices() const {
  return std::any_of(chain.groups.begin(), chain.groups.end(),
                     [](const schedule::GroupSpec& group) { return group.shards_optimizer; });
}

namespace {

// One rank's program, proven together with those of one rank of each class: what runs is what was checked.
schedule::Program proven_program(const StepPlan& plan, int rank) {
  std::vector<int> ranks = schedule::representative_ranks(plan.options);
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  std::vector<schedule::Program> programs;
  for (const int r : ranks) {
    programs.push_back(schedule::lower(schedule::build_schedule(plan.chain, plan.options, r), plan.options));
  }
  const auto findings = schedule::verify_some(plan.chain, plan.options, ranks, programs);
  if (!findings.empty()) {
    throw Error(1310, "schedule of rank " + std::to_string(findings[0].rank), findings[0].what,
                "nothing was started; this is a defect of Trireme, please report it with the configuration");
  }
  return std::move(programs[std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()]);
}

// What one pass leaves another finds.
void check_same_places(const StepPlan& plan) {
  for (const schedule::Program& program : plan.programs) {
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      const schedule::Buffer &buffer = program.buffers[i], &same = plan.program().buffers[i];
      if (!schedule::is_persistent(buffer.kind) || buffer.micro_batch >= 0) continue;
      TRIREME_CHECK(buffer.tier == same.tier && buffer.kind == same.kind && buffer.group == same.group &&
                        buffer.offset == same.offset,
                    "the passes of a step disagree on what outlives them");
    }
  }
}

schedule::Options schedule_options(const Chain& chain, const EngineOptions& options, int shard_ranks) {
  const bool one = chain.compute_dtype == options.master_dtype;  // what units read and the masters
  const std::int64_t arrays = std::ssize(optim::optimizer_of(options.optimizer).state);
  return {.world_size = options.split.num_data_ranks,
          .replicas = options.split.num_data_ranks / shard_ranks,
          .num_micro_batches = options.split.num_micro_batches,
          .reduce_each_micro_batch = reduces_each_round(options),
          .compute_element_bytes = size_of(chain.compute_dtype),
          .wire_element_bytes = size_of(reduce_types(chain, options).wire),
          .accumulator_element_bytes = size_of(options.accumulator_dtype),
          .state_bytes_per_element = arrays * size_of(options.moment_dtype) + (one ? 0 : size_of(options.master_dtype)),
          .weights_are_master = one,
          .steps_wait = options.gradient_clipping > 0 || options.skips_non_finite,
          .overlap = options.overlap,
          .gradient_slots = options.gradient_slots,
          .gather_once = options.sharding.gather_once,
          .gather_ahead = options.gather_ahead,
          .reuse_distance = options.reuse_distance,
          .max_live = options.max_live};
}

// Of each pass, and where it has STEPs that may be asked for a snapshot another with that.
void add_programs(StepPlan& plan, const EngineOptions& options, int rank) {
  std::vector<schedule::Pass> passes{schedule::Pass::closed};
  if (options.overlap && !plan.steps_early() && (plan.updates_slices() || options.offload_optimizer)) {
    passes = {schedule::Pass::cycle, schedule::Pass::opening, schedule::Pass::drain};
  }
  const schedule::Snapshots rest = options.snapshots ? schedule::Snapshots::kept : schedule::Snapshots::none;
  std::vector<std::pair<schedule::Pass, schedule::Snapshots>> variants;
  for (const schedule::Pass pass : passes) variants.emplace_back(pass, rest);
  for (const schedule::Pass pass : passes) {
    if (options.snapshots && pass != schedule::Pass::opening) variants.emplace_back(pass, schedule::Snapshots::taken);
  }
  for (const auto& [pass, snapshots] : variants) {
    plan.options.pass = pass;
    plan.options.snapshots = snapshots;
    plan.programs.push_back(proven_program(plan, rank));
    plan.persistent_bytes = std::max(plan.persistent_bytes, plan.programs.back().persistent_bytes);
    plan.arena_bytes = std::max(plan.arena_bytes, plan.programs.back().arena_bytes);
    plan.host_persistent_bytes = std::max(plan.host_persistent_bytes, plan.programs.back().host_persistent_bytes);
    plan.host_arena_bytes = std::max(plan.host_arena_bytes, plan.programs.back().host_arena_bytes);
  }
  plan.options.pass = passes.front();
  plan.options.snapshots = rest;
}

// What is not there yet on devices.
void refuse_what_is_missing(const comm::ReduceTypes& types, const StepPlan& plan) {
  if (types.wire == types.slot) return;
  for (const schedule::Instruction& instruction : plan.program().instructions) {
    if (instruction.reduce != schedule::ReduceKind::reduce_scatter) continue;
    throw Error(2240, "training.reduce_dtype",
                "sending gradients in " + std::string(to_string(types.wire)) +
                    ", which are computed in another type, does not run on CUDA devices yet",
                "leave reduce_dtype out");
  }
}

}  // namespace

comm::ReduceTypes reduce_types(const Chain& chain, const EngineOptions& options) {
  const DType computed = chain.compute_dtype;
  return {computed, options.reduce_dtype == DType::f32 ? computed : options.reduce_dtype, options.accumulator_dtype};
}

StepPlan plan_step(const Chain& chain, const EngineOptions& options, int rank) {
  const kernels::ForDevice sizes(options.device);
  StepPlan plan;
  plan.ranks_in_reach = options.ranks_in_reach;
  const int world_size = options.split.num_data_ranks;
  TRIREME_CHECK(options.replicas >= 1 && world_size % options.replicas == 0, "replicas must divide the data ranks");
  // Replicas of what is whole are ddp.
  const bool shards = options.sharding.optimizer && options.replicas < world_size;
  const int shard_ranks = shards ? world_size / options.replicas : world_size;
  std::vector<std::vector<int>> unit_parameters;
  std::vector<std::string> unit_names;
  for (const auto& unit : chain.units) {
    unit_parameters.push_back(unit->parameters());
    unit_names.push_back(unit->name());
  }
  plan.groups = make_groups(chain.parameters, unit_parameters, unit_names, shard_ranks, options.wrapping);
  plan.chain = describe_chain(chain, plan.groups, options, shards);
  plan.options = schedule_options(chain, options, shard_ranks);
  add_programs(plan, options, rank);
  check_same_places(plan);
  if (options.device >= 0) refuse_what_is_missing(reduce_types(chain, options), plan);
  plan.arena_bytes = std::max(plan.arena_bytes, evaluation_bytes(chain, plan, options.micro_batch));
  plan.memory_by_owner = memory_by_owner(plan.program(), schedule::Tier::device, plan.arena_bytes);
  plan.host_memory_by_owner = memory_by_owner(plan.program(), schedule::Tier::host, plan.host_arena_bytes);
  add_besides(chain, options, plan);
  return plan;
}

}  // namespace trireme::engine
