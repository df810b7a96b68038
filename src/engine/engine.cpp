#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/failpoint.h"
#include "base/random.h"
#include "chain/forward.h"
#include "engine/gradient_sum.h"
#include "engine/on_device.h"
#include "kernels/device.h"

namespace trireme::engine {

using schedule::BufferKind;
using schedule::Instruction;
using schedule::Op;

// The memory that one instruction works on. Pointers stay the same for the engine's life: every buffer has its place
// from lower().
struct Engine::Bound {
  std::vector<Tensor> parameters, input, output, grad_output, grad_input;
  std::vector<Tensor> stand_ins;  // of the parameters, where a step may be silent
  std::vector<GradientPlace> gradients;
  std::vector<std::pair<int, std::byte*>> fresh_slots;  // (group, slot) that this instruction overwrites
  std::byte *saved = nullptr, *workspace = nullptr, *slot = nullptr, *gathered = nullptr;
  // offload, fetch, gather; step: the sum that it reads and where the units' weights go
  std::byte *source = nullptr, *target = nullptr;
  std::size_t copied_bytes = 0;
};

namespace {

std::vector<std::pair<std::int64_t, std::int64_t>> find_gaps(const StorageGroup& group, const Chain& chain) {
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    if (group.offsets[i] > end) gaps.emplace_back(end, group.offsets[i]);
    end = group.offsets[i] + chain.parameters[group.parameters[i]].numel();
  }
  if (end < group.numel) gaps.emplace_back(end, group.numel);
  return gaps;
}

// Memory is taken on the thread's device.
const EngineOptions& at_its_device(const EngineOptions& options) {
  if (options.device >= 0) kernels::use_device(options.device);
  return options;
}

}  // namespace

Engine::Engine(const Chain& chain, const EngineOptions& options, comm::Communicator& comm)
    : chain_(chain),
      options_(at_its_device(options)),
      comm_(comm),
      plan_(plan_step(chain, options, comm.rank())),
      state_(chain, plan_.groups, plan_.chain, plan_.program(), options.optimizer, plan_.options.slice_of(comm.rank()),
             {options.master_dtype, options.moment_dtype, options.accumulator_dtype}, options.device_memory(),
             options.host_memory()),
      arena_(plan_.arena_bytes, options.device_memory()),
      host_arena_(plan_.host_arena_bytes, options.host_memory()),
      copy_threads_(options.device < 0 ? kernels::num_threads() : options.host_threads),
      reduce_types_(reduce_types(chain, options)),
      loss_scale_(optim::initial_loss_scale(options.loss_scale)) {
  TRIREME_CHECK(comm.world_size() == options.split.num_data_ranks, "the communicator must have one rank a data rank");
  make_subsets();
  if (options.may_be_silent) draw_stand_in();
  for (const StorageGroup& group : plan_.groups) gaps_.push_back(find_gaps(group, chain));
  for (const schedule::Program& program : plan_.programs) {
    std::vector<Bound>& bound = bound_.emplace_back();
    for (const Instruction& instruction : program.instructions) bound.push_back(bind(program, instruction));
  }
  if (options.device >= 0) {
    move_to_device();
  } else {
    executor_ = std::make_unique<Executor>(
        plan_.programs, [this](int program, int instruction) { run(program, instruction); }, [this] { free_peers(); });
  }
}

Engine::~Engine() {
  leave_device();
  kernels::release_library_memory();
}

// By a later unit, whose backward came first. A slot that was written before may lack this parameter's gradient:
// several units share the group.
bool Engine::is_read_after(int unit, int parameter) const {
  return std::any_of(chain_.units.begin() + unit + 1, chain_.units.end(), [&](const auto& later) {
    const std::vector<int>& listed = later->parameters();
    return std::find(listed.begin(), listed.end(), parameter) != listed.end();
  });
}

// Of what units write.
DType Engine::gradient_dtype(int group) const {
  return plan_.chain.groups[group].adds_in_place ? state_.accumulator_dtype() : chain_.compute_dtype;
}

Engine::Bound Engine::bind(const schedule::Program& program, const Instruction& instruction) const {
  Bound bound;
  std::vector<std::byte*> slots(plan_.groups.size(), nullptr), whole(plan_.groups.size(), nullptr);
  for (int group = 0; group < static_cast<int>(plan_.groups.size()); ++group) {
    if (!plan_.chain.groups[group].is_gathered()) whole[group] = state_.weights(group);
  }
  const auto place = [&](int buffer) { return address_of(program.buffers[buffer]); };
  const auto views = [&](const schedule::Buffer& buffer, std::byte* data) {
    return boundary_views(chain_.units[buffer.unit]->output(options_.micro_batch), data);
  };
  for (const int index : instruction.reads) {
    const schedule::Buffer& buffer = program.buffers[index];
    if (buffer.kind == BufferKind::activation) bound.input = views(buffer, place(index));
    if (buffer.kind == BufferKind::boundary_gradient) bound.grad_output = views(buffer, place(index));
    if (buffer.kind == BufferKind::saved) bound.saved = place(index);
    if (buffer.kind == BufferKind::gradient_slot) bound.slot = place(index);
    if (buffer.kind == BufferKind::gathered) whole[buffer.group] = place(index);
  }
  for (const int index : instruction.writes) {
    const schedule::Buffer& buffer = program.buffers[index];
    const bool is_output = buffer.kind == BufferKind::activation || buffer.kind == BufferKind::recomputed_output;
    if (is_output) bound.output = views(buffer, place(index));
    if (buffer.kind == BufferKind::boundary_gradient) bound.grad_input = views(buffer, place(index));
    if (buffer.kind == BufferKind::saved) bound.saved = place(index);
    if (buffer.kind == BufferKind::workspace) bound.workspace = place(index);
    if (buffer.kind == BufferKind::gradient_slot) slots[buffer.group] = place(index);
    if (buffer.kind == BufferKind::accumulator) slots[buffer.group] = state_.accumulator(buffer.group);
    if (buffer.kind == BufferKind::gathered) bound.gathered = place(index);
  }
  bind_copies(program, instruction, bound);
  const bool is_unit_work = instruction.unit >= 0 && bound.copied_bytes == 0;
  if (!is_unit_work) return bound;
  for (const int parameter : chain_.units[instruction.unit]->parameters()) {
    const int group = state_.place(parameter).group;
    bound.parameters.push_back(state_.view(parameter, whole[group]));
    if (!options_.may_be_silent) continue;
    const bool is_gathered = plan_.chain.groups[group].is_gathered();
    bound.stand_ins.push_back(state_.view(parameter, is_gathered ? stand_in_.at(0) : whole[group]));
  }
  if (instruction.op != Op::backward && instruction.op != Op::loss) return bound;

  const std::vector<int>& groups = plan_.chain.units[instruction.unit].gradients;
  std::vector<bool> adds(plan_.groups.size(), false);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    adds[groups[i]] = instruction.adds[i];
    if (!instruction.adds[i]) bound.fresh_slots.emplace_back(groups[i], slots[groups[i]]);
  }
  for (const int parameter : chain_.units[instruction.unit]->parameters()) {
    const ParameterPlace& where = state_.place(parameter);
    const ParameterSpec& spec = chain_.parameters[parameter];
    if (!spec.trainable) {
      bound.gradients.push_back({});
      continue;
    }
    const DType dtype = gradient_dtype(where.group);
    std::byte* data = slots[where.group] + where.offset * size_of(dtype);
    const bool has_earlier_rounds = plan_.chain.groups[where.group].adds_in_place && instruction.round > 0;
    const bool adds_to_it = adds[where.group] && (has_earlier_rounds || is_read_after(instruction.unit, parameter));
    bound.gradients.push_back({Tensor(data, dtype, {spec.rows, spec.columns}), adds_to_it});
  }
  return bound;
}

void Engine::bind_copies(const schedule::Program& program, const Instruction& instruction, Bound& bound) const {
  const bool copies = instruction.op == Op::offload || instruction.op == Op::fetch;
  if (!copies && instruction.op != Op::gather && instruction.op != Op::step) return;
  const schedule::Buffer& source = program.buffers[instruction.reads.front()];
  const schedule::Buffer& target = program.buffers[instruction.writes.back()];
  bound.source = address_of(source);
  bound.target = address_of(target);
  // Of what is whole on one side and a slice on the other, the slice.
  if (copies) bound.copied_bytes = static_cast<std::size_t>(std::min(source.bytes, target.bytes));
}

// Of a group's persistent buffers, what this rank updates.
std::byte* Engine::address_of(const schedule::Buffer& buffer) const {
  if (buffer.kind == BufferKind::accumulator) return state_.updated_accumulator(buffer.group);
  if (buffer.kind == BufferKind::sum_copy) return state_.sum_copy(buffer.group);
  if (schedule::is_persistent(buffer.kind)) return state_.updated_weights(buffer.group);
  return (buffer.tier == schedule::Tier::host ? host_arena_ : arena_).at(buffer.offset);
}

StepReport Engine::step(std::span<const Batch> batches, const StepOptions& options) {
  TRIREME_CHECK(static_cast<int>(batches.size()) == options_.split.rounds(), "a step needs one batch a round");
  TRIREME_CHECK(options_.snapshots || !options.snapshot, "a snapshot was asked for that is not planned");
  TRIREME_CHECK(options_.may_be_silent || !options.silent,
                "a silent step was asked for of an engine that is not made for it");
  batches_ = batches;
  step_options_ = options;
  const bool overlaps = plan_.overlaps_steps();
  if (options.snapshot || due_snapshot_) refuse_overwriting();
  check(batches);
  const std::int64_t number = options.run_step > 0 ? options.run_step : options.step;
  if (options.snapshot && !overlaps) due_snapshot_ = number;
  report_ = StepReport{.loss_scale = loss_scale_.scale, .program = next_program()};
  own_losses_.assign(batches.size(), 0.0);
  if (device_ == nullptr) losses_ = own_losses_.data();
  if (options.record_spans || options_.measures) {
    report_.spans.resize(plan_.programs[report_.program].instructions.size());
  }
  run_program(report_.program, report_.spans);
  if (options.snapshot && overlaps) due_snapshot_ = number;
  if (options_.measures) report_.seconds = sum_of_seconds();
  move_loss_scale();
  if (!options.record_spans) report_.spans.clear();
  return report_;
}

void Engine::run_program(std::size_t program, std::span<schedule::Span> record) {
  const bool takes_snapshot = plan_.programs[program].snapshots == schedule::Snapshots::taken;
  if (takes_snapshot) snapshot_step_.reset();
  if (device_ != nullptr) {
    run_on_device(program, record);
  } else {
    executor_->run(static_cast<int>(program), record);
  }
  if (takes_snapshot) snapshot_step_ = std::exchange(due_snapshot_, std::nullopt);
  is_pending_ = schedule::leaves_steps(plan_.programs[program].pass);
}

std::size_t Engine::next_program() const {
  using enum schedule::Pass;
  if (plan_.overlaps_steps() && !is_pending_) return plan_.index_of(opening);
  return plan_.index_of(is_pending_ ? cycle : closed, due_snapshot_.has_value());
}

void Engine::drain() {
  if (!is_pending_) return;
  if (due_snapshot_) refuse_overwriting();
  run_program(plan_.index_of(schedule::Pass::drain, due_snapshot_.has_value()), {});
}

ModelState& Engine::state() {
  TRIREME_CHECK(!is_pending_, "the state was asked for while a step is pending");
  wait_for_device();
  return state_;
}

void Engine::run(int program, int index) {
  failpoint("engine.instruction", comm_.rank());
  const Instruction& instruction = plan_.programs[program].instructions[index];
  const Bound& bound = bound_[program][index];
  if (step_options_.silent && schedule::is_collective(instruction)) return skip_collective(instruction, bound.slot);
  switch (instruction.op) {
    case Op::count: return run_count();
    case Op::forward:
    case Op::loss:
    case Op::recompute:
    case Op::backward: return run_compute(instruction, bound);
    case Op::accumulate: return run_accumulate(instruction, bound);
    case Op::reduce: return run_reduce(instruction, bound.slot);
    case Op::gather: return run_gather(instruction, bound);
    case Op::release: return;
    case Op::report: return device_ != nullptr ? report_of_device() : run_report();
    case Op::norm: return run_norm();
    case Op::step: return run_step(instruction, bound);
    case Op::offload:
    case Op::fetch: return run_copy(bound);
    case Op::snapshot: return state_.take_snapshot(instruction.group);
  }
}

void Engine::run_compute(const Instruction& instruction, const Bound& bound) {
  const Unit& unit = *chain_.units[instruction.unit];
  const std::vector<Tensor>& parameters = step_options_.silent ? bound.stand_ins : bound.parameters;
  const Batch& batch = device_ != nullptr ? batch_on_device(instruction.round) : batches_[instruction.round];
  // Bytes between parameters belong to nobody, but norm and optimizer run over whole groups.
  for (const auto& [group, slot] : bound.fresh_slots) {
    const std::int64_t element = size_of(gradient_dtype(group));
    for (const auto& [begin, end] : gaps_[group]) {
      kernels::zero(slot + begin * element, (end - begin) * element);
    }
  }
  switch (instruction.op) {
    case Op::forward:
    case Op::recompute:
      failpoint("engine.forward", comm_.rank());
      unit.forward({batch, parameters, bound.input, bound.output, bound.saved, bound.workspace});
      return;
    case Op::loss: {
      const double factor = report_.loss_scale * options_.gradient_factor;
      const double scale = report_.valid_tokens > 0 ? factor / static_cast<double>(report_.valid_tokens) : 0.0;
      unit.loss({batch, parameters, bound.input, bound.grad_input, bound.gradients, scale, bound.workspace,
                 losses_ + instruction.round});
      break;
    }
    default:
      failpoint("engine.backward", comm_.rank());
      unit.backward({batch, parameters, bound.input, bound.grad_output, bound.grad_input, bound.gradients, bound.saved,
                     bound.workspace});
  }
  if (failpoint("engine.gradient", comm_.rank())) spoil_last(bound.gradients);
}

void Engine::run_accumulate(const Instruction& instruction, const Bound& bound) {
  add_gradient(plan_.groups[instruction.group].numel, bound.slot, reduce_types_, state_.accumulator(instruction.group),
               instruction.first);
}

void Engine::run_gather(const Instruction& instruction, const Bound& bound) {
  failpoint("engine.gather", comm_.rank());
  gather_weights(instruction.group, bound.source,
                 bound.gathered != nullptr ? bound.gathered : state_.weights(instruction.group));
}

void Engine::run_copy(const Bound& bound) {
  kernels::copy(bound.target, bound.source, static_cast<std::int64_t>(bound.copied_bytes));
}

void Engine::run_step(const Instruction& instruction, const Bound& bound) {
  const bool on_host = instruction.lane == schedule::Lane::copy;
  // One that does not wait runs beside REPORT, which writes due_ and the update.
  const bool is_early = on_host && plan_.steps_early();
  const Due due = is_early ? Due{step_options_.learning_rate, step_options_.step} : due_;
  const kernels::Update early{.gradient_scale = 1.0 / report_.loss_scale};
  if (!on_host) return update_group(instruction.group, bound, due, numbers_->update);
  const auto update = [this, &instruction, &bound, due, is_early, early] {
    kernels::set_num_threads(copy_threads_);
    update_on_host(instruction.group, bound, due, is_early ? early : update_for_host());
  };
  device_ == nullptr ? update() : call_on_host(update);
}

void Engine::update_on_host(int group, const Bound& bound, const Due& due, const kernels::Update& update) const {
  if (update.skips) return state_.write_weights(group, bound.target);  // they are fetched all the same
  update_group(group, bound, due, update);
}

// Elements [begin, begin + n) of a run.
static kernels::OptimizerRun part_of(kernels::OptimizerRun run, std::int64_t begin, std::int64_t n) {
  const auto advance = [begin](void*& array, DType dtype) {
    if (array != nullptr) array = static_cast<std::byte*>(array) + begin * size_of(dtype);
  };
  run.n = n;
  advance(run.master, run.master_dtype);
  advance(run.m, run.moment_dtype);
  advance(run.v, run.moment_dtype);
  advance(run.weights, run.weights_dtype);
  run.gradient = static_cast<const std::byte*>(run.gradient) + begin * size_of(run.gradient_dtype);
  return run;
}

void Engine::update_group(int g, const Bound& bound, const Due& due, const kernels::Update& update) const {
  const kernels::OptimizerArguments arguments =
      optim::arguments_of(options_.optimizer, due.learning_rate, due.step, plan_.groups[g].decay);
  const auto kernel = kernels::flat_table().*optim::optimizer_of(options_.optimizer).kernel;
  const kernels::OptimizerRun run{
      .n = state_.updated(g).size(),
      .master = state_.updated_data(StateKind::master, g),
      .m = state_.updated_data(StateKind::first, g),
      .v = state_.updated_data(StateKind::second, g),
      .gradient = bound.source,
      .gradient_dtype = state_.accumulator_dtype(),
      .weights = state_.weights_are_master(g) ? nullptr : bound.target,
      .weights_dtype = chain_.compute_dtype,
      .master_dtype = state_.dtype_of(StateKind::master, g),
      .moment_dtype = state_.dtype_of(StateKind::first, g),
      .rounding = {.seed = options_.rounding_seed, .step = static_cast<std::uint64_t>(due.step)}};
  if (run.is_fp32()) return kernel(arguments, &update, run);
  // Parameter by parameter, so that what is random depends neither on groups nor on slices.
  const Range range = state_.updated(g);
  const StorageGroup& group = plan_.groups[g];
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const ParameterSpec& parameter = chain_.parameters[group.parameters[i]];
    const std::int64_t first = group.offsets[i];
    const std::int64_t begin = std::max(first, range.begin), end = std::min(first + parameter.numel(), range.end);
    if (begin >= end) continue;
    kernels::OptimizerRun part = part_of(run, begin - range.begin, end - begin);
    part.rounding.stream = stream_id("round/" + parameter.logical.front().name);
    part.rounding.first = begin - first;
    kernel(arguments, &update, part);
  }
}

}  // namespace trireme::engine
