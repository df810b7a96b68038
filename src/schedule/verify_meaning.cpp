// Roles, units, every micro-batch once, and what a pass holds.
#include "schedule/verify_meaning.h"

#include <algorithm>

namespace trireme::schedule {
namespace {

bool same_buffer(const Buffer& a, const Buffer& b) {
  return a.kind == b.kind && a.unit == b.unit && a.group == b.group && a.micro_batch == b.micro_batch &&
         a.bytes == b.bytes && a.tier == b.tier;
}

}  // namespace

MeaningChecker::MeaningChecker(Inspection& inspection)
    : inspection_(inspection),
      chain_(inspection.chain),
      split_{inspection.options.num_micro_batches, inspection.options.world_size},
      groups_(chain_.groups.size()),
      work_(chain_.units.size() * split_.num_micro_batches) {
  for (const UnitSpec& unit : chain_.units) {
    for (const int group : unit.gradients) ++groups_[group].contributors;
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    groups_[group].contributions.assign(split_.num_micro_batches, 0);
    groups_[group].pending = chain_.groups[group].trainable && begins_with_steps(options().pass);
  }
  for (int round = 0; round < split_.rounds(); ++round) own_rounds_ += split_.micro_batch(round, rank()) >= 0;
}

void MeaningChecker::run() {
  const auto& instructions = inspection_.program.instructions;
  for (index_ = 0; index_ < static_cast<int>(instructions.size()); ++index_) {
    check_accesses(instructions[index_]);
    check(instructions[index_]);
  }
  check_end();
}

void MeaningChecker::expect(bool holds, const std::string& what) {
  if (holds) return;
  const bool at_end = index_ >= static_cast<int>(inspection_.program.instructions.size());
  inspection_.report(at_end ? -1 : index_, at_end ? what : inspection_.name(index_) + " " + what);
}

std::string MeaningChecker::sized_name(const Buffer& buffer) const {
  return to_string(buffer, chain_) + " (" + std::to_string(buffer.bytes) + " bytes)";
}

void MeaningChecker::check_list(const std::vector<int>& list, const std::vector<Buffer>& expected, const char* verb) {
  for (std::size_t i = 0; i < std::max(list.size(), expected.size()); ++i) {
    if (i >= list.size()) return expect(false, "does not " + (verb + (" " + sized_name(expected[i]))));
    const Buffer& buffer = inspection_.program.buffers[list[i]];
    if (i < expected.size() && same_buffer(buffer, expected[i])) continue;
    const std::string what = std::string("must not ") + verb + " " + sized_name(buffer);
    return expect(false, i < expected.size() ? what + " but " + sized_name(expected[i]) : what);
  }
}

void MeaningChecker::check_accesses(const Instruction& instruction) {
  const Accesses expected = expected_accesses(chain_, inspection_.options, rank(), instruction);
  check_list(instruction.reads, expected.reads, "read");
  check_list(instruction.writes, expected.writes, "write");
}

void MeaningChecker::check(const Instruction& instruction) {
  const bool is_sum = instruction.op == Op::accumulate || instruction.op == Op::reduce;
  expect(is_sum || !instruction.first, "cannot be a first sum");
  expect((instruction.op == Op::reduce) == (instruction.reduce != ReduceKind::none), "has a wrong kind of reduction");
  switch (instruction.op) {
    case Op::count: return check_once(instruction, counted_, 1);
    case Op::report:
      expect(normed_, "comes before norm");
      return check_once(instruction, reported_, split_.num_micro_batches);
    case Op::forward:
    case Op::loss:
    case Op::recompute:
    case Op::backward: return check_unit(instruction);
    case Op::accumulate: return check_accumulate(instruction);
    case Op::reduce: return check_reduce(instruction);
    case Op::norm: return check_norm();
    case Op::step: return check_step(instruction);
    case Op::gather: return check_gather(instruction);
    case Op::release: return check_release(instruction);
    case Op::offload:
    case Op::fetch:
      expect(instruction.participants == 0 && instruction.element_count == 0, "is no collective");
      return instruction.unit >= 0 ? check_input(instruction) : check_copy(instruction);
    case Op::snapshot: return check_snapshot(instruction);
  }
}

void MeaningChecker::check_input(const Instruction& instruction) {
  expect(chain_.units[instruction.unit].input_on_host && has_backward(chain_, instruction.unit),
         "copies an input that stays on the device");
  expect(split_.micro_batch(instruction.round, rank()) == instruction.micro_batch, "is not this rank's work");
  Work& work = work_[instruction.unit * split_.num_micro_batches + instruction.micro_batch];
  bool& done = instruction.op == Op::offload ? work.offload : work.fetch;
  expect(!done, "comes twice");
  expect(instruction.op == Op::offload || work.offload, "fetches what was not offloaded");
  done = true;
}

void MeaningChecker::check_once(const Instruction& instruction, bool& done, std::int64_t count) {
  expect(!done, "comes twice");
  expect(instruction.scope == Scope::world && instruction.participants == split_.num_data_ranks, "leaves ranks out");
  expect(instruction.element_count == count, "has a wrong count");
  done = true;
}

void MeaningChecker::check_unit(const Instruction& instruction) {
  const UnitSpec& unit = chain_.units[instruction.unit];
  const bool head = instruction.unit == static_cast<int>(chain_.units.size()) - 1;
  expect(head == (instruction.op == Op::loss), "is not what this unit does");
  expect(split_.micro_batch(instruction.round, rank()) == instruction.micro_batch, "is not this rank's work");
  Work& work = work_[instruction.unit * split_.num_micro_batches + instruction.micro_batch];
  bool& done = instruction.op == Op::forward     ? work.forward
               : instruction.op == Op::recompute ? work.recompute
                                                 : work.backward;
  expect(!done, "comes twice");
  done = true;
  for (std::size_t i = 0; i < unit.reads.size(); ++i) {
    const Group& group = groups_[unit.reads[i]];
    const GroupSpec& spec = chain_.groups[unit.reads[i]];
    check_freshness(group, "reads");
    if (begins_with_steps(options().pass)) {
      expect(!spec.updates_slice_of_whole() || group.gathered_after, "reads weights before their gather");
      expect(!fetches_after_step(spec) || group.fetched_after, "reads weights before they are fetched");
    }
    if (!spec.is_gathered()) continue;
    const int read = i < instruction.reads.size() ? instruction.reads[i] : -1;
    expect(read >= 0 && read == group.gathered, "reads weights that are not gathered");
  }
  if (instruction.op == Op::forward || instruction.op == Op::recompute) {
    expect(instruction.adds.empty(), "adds into gradients");
    expect(instruction.op == Op::forward || (unit.recompute && work.forward), "runs a forward again that is kept");
    const bool restored = work.fetch || !unit.input_on_host;
    expect(instruction.op == Op::forward || restored, "comes before its input was fetched");
    return;
  }
  expect(head || work.forward, "comes before its forward");
  expect(head || has_backward(chain_, instruction.unit), "has nothing to give gradients for");
  expect(work.recompute == unit.recompute, "comes before its forward ran again");
  check_contributions(instruction, unit);
}

void MeaningChecker::check_contributions(const Instruction& instruction, const UnitSpec& unit) {
  expect(instruction.adds.size() == unit.gradients.size(), "does not say for each gradient whether it adds");
  for (std::size_t i = 0; i < std::min(instruction.adds.size(), unit.gradients.size()); ++i) {
    const GroupSpec& spec = chain_.groups[unit.gradients[i]];
    Group& group = groups_[unit.gradients[i]];
    int& contributions = group.contributions[instruction.micro_batch];
    const bool is_empty = contributions == 0 && (!spec.adds_in_place || group.rounds == 0);
    expect(instruction.adds[i] != is_empty, instruction.adds[i] ? "adds into an empty slot of " + spec.name
                                                                : "overwrites what is in the slot of " + spec.name);
    ++contributions;
    if (spec.adds_in_place) check_sum_in_place(unit.gradients[i], instruction);
  }
}

void MeaningChecker::check_end() {
  const bool works = options().pass != Pass::drain, steps = options().pass != Pass::opening;
  expect(counted_ == works, works ? "count is missing" : "count is too much");
  expect(reported_ == works, works ? "report is missing" : "report is too much");
  expect(normed_ == works, works ? "norm is missing" : "norm is too much");
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    expect(groups_[group].gathered < 0, "release " + chain_.groups[group].name + " is missing");
    expect(groups_[group].fetched < 0, "gather " + chain_.groups[group].name + " is missing after its fetch");
    if (!chain_.groups[group].trainable) continue;
    expect(groups_[group].stepped == steps,
           "step " + chain_.groups[group].name + (steps ? " is missing" : " is too much"));
    expect(groups_[group].offloaded || !chain_.groups[group].state_on_host || !works,
           "offload " + chain_.groups[group].name + " is missing");
    expect(!fetches_after_step(chain_.groups[group]) || !steps || groups_[group].fetched_after,
           "fetch " + chain_.groups[group].name + " is missing after its step");
    expect(groups_[group].snapshotted == (options().snapshots == Snapshots::taken),
           "snapshot " + chain_.groups[group].name + " is missing");
    const bool needs_gather = chain_.groups[group].shards_optimizer && !chain_.groups[group].shards_parameters;
    expect(!needs_gather || !steps || groups_[group].gathered_after,
           "gather " + chain_.groups[group].name + " is missing after its step");
  }
  if (works) check_all_work_done();
}

void MeaningChecker::check_all_work_done() {
  for (int unit = 0; unit < static_cast<int>(chain_.units.size()); ++unit) {
    const bool head = unit == static_cast<int>(chain_.units.size()) - 1;
    for (int micro_batch = rank(); micro_batch < split_.num_micro_batches; micro_batch += split_.num_data_ranks) {
      const Work& work = work_[unit * split_.num_micro_batches + micro_batch];
      const bool is_complete = head ? work.backward : work.forward && work.backward == has_backward(chain_, unit);
      expect(is_complete, chain_.units[unit].name + " does not do micro-batch " + std::to_string(micro_batch));
    }
  }
}

void check_meaning(Inspection& inspection) {
  MeaningChecker(inspection).run();
}

}  // namespace trireme::schedule
