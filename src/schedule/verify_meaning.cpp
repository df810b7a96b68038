#include <algorithm>

#include "layout/mesh.h"
#include "schedule/verify_parts.h"

namespace trireme::schedule {
namespace {

bool same_buffer(const Buffer& a, const Buffer& b) {
  return a.kind == b.kind && a.unit == b.unit && a.group == b.group && a.micro_batch == b.micro_batch &&
         a.bytes == b.bytes && a.tier == b.tier;
}

// Walks one rank's instructions in issue order and keeps count of what has been done.
class MeaningChecker {
 public:
  explicit MeaningChecker(Inspection& inspection)
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

  void run() {
    const auto& instructions = inspection_.program.instructions;
    for (index_ = 0; index_ < static_cast<int>(instructions.size()); ++index_) {
      check_accesses(instructions[index_]);
      check(instructions[index_]);
    }
    check_end();
  }

 private:
  struct Group {
    int contributors = 0;            // units that give gradients for it
    std::vector<int> contributions;  // per micro-batch: how many of them have, so far
    int rounds = 0;                  // summed into the accumulator so far
    std::size_t completions = 0;     // reductions after the rounds so far
    bool complete = false;           // the accumulator holds the global sum
    bool pending = false;            // it holds that of the step before
    bool stepped = false;
    bool gathered_after = false;  // whole weights that are updated in slices: all ranks have all slices
    int gathered = -1;            // sharded or fetched weights: the buffer that holds them whole now
    bool offloaded = false;       // the sum is where the state is
    bool fetched_after = false;   // weights on the device, state on the host: they are those of STEP
    int fetched = -1;             // a slice's buffer on the device, until it is gathered
  };
  struct Work {
    bool forward = false, recompute = false, backward = false;  // the head has only the last, LOSS
    bool offload = false, fetch = false;                        // of its input
  };

  int rank() const { return inspection_.rank; }

  void expect(bool holds, const std::string& what) {
    if (holds) return;
    const bool at_end = index_ >= static_cast<int>(inspection_.program.instructions.size());
    inspection_.report(at_end ? -1 : index_, at_end ? what : inspection_.name(index_) + " " + what);
  }

  std::string sized_name(const Buffer& buffer) const {
    return to_string(buffer, chain_) + " (" + std::to_string(buffer.bytes) + " bytes)";
  }

  void check_list(const std::vector<int>& list, const std::vector<Buffer>& expected, const char* verb) {
    for (std::size_t i = 0; i < std::max(list.size(), expected.size()); ++i) {
      if (i >= list.size()) return expect(false, "does not " + (verb + (" " + sized_name(expected[i]))));
      const Buffer& buffer = inspection_.program.buffers[list[i]];
      if (i < expected.size() && same_buffer(buffer, expected[i])) continue;
      const std::string what = std::string("must not ") + verb + " " + sized_name(buffer);
      return expect(false, i < expected.size() ? what + " but " + sized_name(expected[i]) : what);
    }
  }

  void check_accesses(const Instruction& instruction) {
    const Accesses expected = expected_accesses(chain_, inspection_.options, rank(), instruction);
    check_list(instruction.reads, expected.reads, "read");
    check_list(instruction.writes, expected.writes, "write");
  }

  void check(const Instruction& instruction) {
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
    }
  }

  const Options& options() const { return inspection_.options; }

  void check_gather(const Instruction& instruction) {
    const GroupSpec& spec = chain_.groups[instruction.group];
    Group& group = groups_[instruction.group];
    expect(instruction.scope == Scope::shards && instruction.participants == options().shard_ranks(),
           "leaves ranks out");
    expect(instruction.element_count == spec.numel, "has a wrong count");
    if (spec.shards_parameters) {
      expect(group.gathered < 0, "comes while the group is gathered");
      if (spec.weights_on_host) {
        expect(group.fetched >= 0 && !instruction.reads.empty() && instruction.reads.front() == group.fetched,
               "gathers a slice that was not fetched for it");
        group.fetched = -1;
      }
      check_freshness(group, "gathers");
      group.gathered = instruction.writes.empty() ? -1 : instruction.writes.front();
      return check_live();
    }
    expect(spec.shards_optimizer, "has nothing to gather");
    expect(group.stepped && !group.gathered_after, "does not come once after its step");
    expect(group.fetched_after || !spec.state_on_host, "comes before the weights of its step are fetched");
    group.gathered_after = true;
  }

  // A pass that begins with the pending STEPs works on the weights behind them, another one on those before its own.
  void check_freshness(const Group& group, const std::string& verb) {
    expect(!group.pending, verb + " weights before their step");
    expect(!group.stepped || begins_with_steps(options().pass), verb + " weights that were stepped already");
  }

  // More than max_live only where the unit that works next reads all of it; a rank without work has none.
  void check_live() {
    if (options().max_live == 0) return;
    std::vector<int> live;
    std::int64_t elements = 0;
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      if (groups_[group].gathered < 0) continue;
      live.push_back(group);
      elements += chain_.groups[group].numel;
    }
    if (elements <= options().max_live) return;
    const auto reads_all = [&](const UnitSpec& unit) {
      return std::all_of(live.begin(), live.end(), [&](int group) {
        return std::find(unit.reads.begin(), unit.reads.end(), group) != unit.reads.end();
      });
    };
    const auto& instructions = inspection_.program.instructions;
    const auto next = std::find_if(instructions.begin() + index_, instructions.end(), [](const Instruction& later) {
      return later.unit >= 0 && later.lane == Lane::compute;
    });
    const bool holds = next != instructions.end() ? reads_all(chain_.units[next->unit])
                                                  : std::any_of(chain_.units.begin(), chain_.units.end(), reads_all);
    expect(holds,
           "makes " + std::to_string(elements) + " gathered elements of at most " + std::to_string(options().max_live));
  }

  void check_input(const Instruction& instruction) {
    expect(chain_.units[instruction.unit].input_on_host && has_backward(chain_, instruction.unit),
           "copies an input that stays on the device");
    expect(split_.micro_batch(instruction.round, rank()) == instruction.micro_batch, "is not this rank's work");
    Work& work = work_[instruction.unit * split_.num_micro_batches + instruction.micro_batch];
    bool& done = instruction.op == Op::offload ? work.offload : work.fetch;
    expect(!done, "comes twice");
    expect(instruction.op == Op::offload || work.offload, "fetches what was not offloaded");
    done = true;
  }

  void check_copy(const Instruction& instruction) {
    const GroupSpec& spec = chain_.groups[instruction.group];
    Group& group = groups_[instruction.group];
    if (instruction.op == Op::offload) {
      expect(spec.state_on_host, "offloads a sum that is updated on the device");
      expect(group.complete && !group.offloaded, "does not come once after the sum is complete");
      group.offloaded = true;
      return;
    }
    const int target = instruction.writes.empty() ? -1 : instruction.writes.front();
    if (spec.weights_on_host) {
      check_freshness(group, "fetches");
      int& held = spec.shards_parameters ? group.fetched : group.gathered;
      expect(held < 0, "comes while the weights are there");
      held = target;
      return check_live();
    }
    expect(spec.state_on_host, "has nothing to fetch");
    expect(group.stepped && !group.fetched_after, "does not come once after its step");
    group.fetched_after = true;
  }

  void check_release(const Instruction& instruction) {
    Group& group = groups_[instruction.group];
    const int released = instruction.writes.empty() ? -1 : instruction.writes.front();
    expect(chain_.groups[instruction.group].is_gathered() && group.gathered >= 0, "releases what is not gathered");
    expect(released == group.gathered, "releases another gathering than the last");
    group.gathered = -1;
  }

  void check_once(const Instruction& instruction, bool& done, std::int64_t count) {
    expect(!done, "comes twice");
    expect(instruction.scope == Scope::world && instruction.participants == split_.num_data_ranks, "leaves ranks out");
    expect(instruction.element_count == count, "has a wrong count");
    done = true;
  }

  void check_unit(const Instruction& instruction) {
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

  void check_contributions(const Instruction& instruction, const UnitSpec& unit) {
    expect(instruction.adds.size() == unit.gradients.size(), "does not say for each gradient whether it adds");
    for (std::size_t i = 0; i < std::min(instruction.adds.size(), unit.gradients.size()); ++i) {
      const std::string name = chain_.groups[unit.gradients[i]].name;
      int& contributions = groups_[unit.gradients[i]].contributions[instruction.micro_batch];
      expect(instruction.adds[i] == (contributions > 0),
             instruction.adds[i] ? "adds into an empty slot of " + name : "overwrites what is in the slot of " + name);
      ++contributions;
    }
  }

  void check_slot(const Group& group, int micro_batch) {
    expect(group.contributions[micro_batch] == group.contributors, "comes before the gradient is complete");
  }

  // The sum of the next round, neither left out nor out of order.
  void check_round(Group& group, const Instruction& instruction) {
    expect(instruction.round == group.rounds, "sums round " + std::to_string(instruction.round) + " where round " +
                                                  std::to_string(group.rounds) + " is due");
    expect(instruction.first == (group.rounds == 0),
           instruction.first ? "overwrites the sum" : "adds to the sum of the step before");
    expect(!group.complete, "comes after the sum was completed");
    expect(!group.pending, "comes before the step that the sum is for");
    ++group.rounds;
  }

  // Whether every round's slots go to other ranks at once.
  bool reduces_each(int group) const {
    return split_.num_data_ranks > 1 && (options().reduce_each_micro_batch || chain_.groups[group].shards_gradients);
  }

  // The kinds of reduction that complete a group's sum after its rounds, in order.
  std::vector<ReduceKind> completions(int group) const {
    std::vector<ReduceKind> kinds;
    const bool slices = chain_.groups[group].shards_optimizer;
    if (split_.num_data_ranks == 1) return kinds;
    if (slices && !reduces_each(group)) kinds.push_back(ReduceKind::scatter_sums);
    if (!slices) kinds.push_back(reduces_each(group) ? ReduceKind::all_gather : ReduceKind::all_reduce);
    if (options().replicas > 1) kinds.push_back(ReduceKind::sum_replicas);
    return kinds;
  }

  void complete_if_done(Group& group, int id) {
    const int rounds = reduces_each(id) ? split_.rounds() : own_rounds_;
    group.complete = group.rounds == rounds && group.completions == completions(id).size();
  }

  void check_accumulate(const Instruction& instruction) {
    Group& group = groups_[instruction.group];
    expect(!reduces_each(instruction.group), "sums on this rank alone");
    expect(instruction.micro_batch == split_.micro_batch(instruction.round, rank()), "is not this rank's work");
    check_slot(group, instruction.micro_batch);
    check_round(group, instruction);
    complete_if_done(group, instruction.group);
  }

  int participants(int round) const {
    const int before = options().replica_of(rank()) * options().shard_ranks();
    return std::clamp(split_.ranks_in_round(round) - before, 0, options().shard_ranks());
  }

  void check_scope(const Instruction& instruction, Scope scope, int participants) {
    expect(instruction.scope == scope, "is among the wrong ranks");
    expect(instruction.participants == participants, "has " + std::to_string(instruction.participants) +
                                                         " participants instead of " + std::to_string(participants));
  }

  void check_reduce(const Instruction& instruction) {
    Group& group = groups_[instruction.group];
    expect(split_.num_data_ranks > 1, "has no other rank");
    expect(instruction.element_count == chain_.groups[instruction.group].numel, "has a wrong count");
    if (instruction.reduce == ReduceKind::reduce_scatter) {
      expect(reduces_each(instruction.group), "is not how this run reduces");
      check_scope(instruction, Scope::shards, participants(instruction.round));
      const int micro_batch = split_.micro_batch(instruction.round, rank());
      if (micro_batch >= 0) check_slot(group, micro_batch);
      check_round(group, instruction);
      complete_if_done(group, instruction.group);
      return;
    }
    const std::vector<ReduceKind> kinds = completions(instruction.group);
    expect(group.completions < kinds.size() && instruction.reduce == kinds[group.completions],
           "is not how this run reduces");
    switch (instruction.reduce) {
      case ReduceKind::scatter_sums: check_scope(instruction, Scope::shards, options().shard_ranks()); break;
      case ReduceKind::sum_replicas: check_scope(instruction, Scope::replicas, options().replicas); break;
      default: check_scope(instruction, Scope::world, split_.num_data_ranks);
    }
    expect(!instruction.first, "cannot be a first sum");
    expect(instruction.round == split_.rounds() - 1, "is of another round than the last");
    expect(!group.complete, "comes twice");
    expect(group.rounds == (reduces_each(instruction.group) ? split_.rounds() : own_rounds_),
           "comes before this rank's sum is complete");
    ++group.completions;
    complete_if_done(group, instruction.group);
  }

  void check_norm() {
    expect(!normed_, "comes twice");
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      expect(!chain_.groups[group].trainable || groups_[group].complete,
             "comes before the gradient of " + chain_.groups[group].name + " is complete");
    }
    normed_ = true;
  }

  void check_step(const Instruction& instruction) {
    Group& group = groups_[instruction.group];
    const GroupSpec& spec = chain_.groups[instruction.group];
    expect(spec.trainable, "changes a frozen group");
    expect(!group.stepped, "comes twice");
    if (begins_with_steps(options().pass)) {
      expect(group.rounds == 0 && !normed_, "comes after the sum that it is for");
    } else {
      const bool waits = options().steps_wait || !spec.state_on_host;
      expect((reported_ || !waits) && group.complete, "comes before report or sum");
      expect(group.offloaded || !spec.state_on_host, "comes before its sum is offloaded");
      expect(!leaves_steps(options().pass), "is left to the next pass");
    }
    group.stepped = true;
    group.pending = false;
  }

  static bool fetches_after_step(const GroupSpec& spec) { return spec.state_on_host && !spec.weights_on_host; }

  void check_end() {
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
      const bool needs_gather = chain_.groups[group].shards_optimizer && !chain_.groups[group].shards_parameters;
      expect(!needs_gather || !steps || groups_[group].gathered_after,
             "gather " + chain_.groups[group].name + " is missing after its step");
    }
    if (works) check_all_work_done();
  }

  void check_all_work_done() {
    for (int unit = 0; unit < static_cast<int>(chain_.units.size()); ++unit) {
      const bool head = unit == static_cast<int>(chain_.units.size()) - 1;
      for (int micro_batch = rank(); micro_batch < split_.num_micro_batches; micro_batch += split_.num_data_ranks) {
        const Work& work = work_[unit * split_.num_micro_batches + micro_batch];
        const bool is_complete = head ? work.backward : work.forward && work.backward == has_backward(chain_, unit);
        expect(is_complete, chain_.units[unit].name + " does not do micro-batch " + std::to_string(micro_batch));
      }
    }
  }

  Inspection& inspection_;
  const ChainSpec& chain_;
  const MicroBatchSplit split_;
  std::vector<Group> groups_;
  std::vector<Work> work_;  // unit * M + micro-batch
  int own_rounds_ = 0;
  bool counted_ = false, reported_ = false, normed_ = false;
  int index_ = 0;
};

}  // namespace

void check_meaning(Inspection& inspection) {
  MeaningChecker(inspection).run();
}

}  // namespace trireme::schedule
