#include <algorithm>

#include "layout/mesh.h"
#include "schedule/verify_parts.h"

namespace trireme::schedule {
namespace {

bool same_buffer(const Buffer& a, const Buffer& b) {
  return a.kind == b.kind && a.unit == b.unit && a.group == b.group && a.micro_batch == b.micro_batch &&
         a.bytes == b.bytes;
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
    for (Group& group : groups_) group.contributions.assign(split_.num_micro_batches, 0);
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
    bool complete = false;           // the accumulator holds the global sum
    bool stepped = false;
  };
  struct Work {
    bool forward = false, backward = false;  // the head has only the second, LOSS
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
      case Op::report: return check_once(instruction, reported_, split_.num_micro_batches);
      case Op::forward:
      case Op::loss:
      case Op::backward: return check_unit(instruction);
      case Op::accumulate: return check_accumulate(instruction);
      case Op::reduce: return check_reduce(instruction);
      case Op::norm: return check_norm();
      case Op::step: return check_step(instruction);
    }
  }

  void check_once(const Instruction& instruction, bool& done, std::int64_t count) {
    expect(!done, "comes twice");
    expect(instruction.participants == split_.num_data_ranks, "leaves ranks out");
    expect(instruction.element_count == count, "has a wrong count");
    done = true;
  }

  void check_unit(const Instruction& instruction) {
    const UnitSpec& unit = chain_.units[instruction.unit];
    const bool head = instruction.unit == static_cast<int>(chain_.units.size()) - 1;
    expect(head == (instruction.op == Op::loss), "is not what this unit does");
    expect(split_.micro_batch(instruction.round, rank()) == instruction.micro_batch, "is not this rank's work");
    Work& work = work_[instruction.unit * split_.num_micro_batches + instruction.micro_batch];
    bool& done = instruction.op == Op::forward ? work.forward : work.backward;
    expect(!done, "comes twice");
    done = true;
    for (const int group : unit.reads) {
      expect(!groups_[group].stepped, "reads weights that were stepped already");
    }
    if (instruction.op == Op::forward) {
      expect(instruction.adds.empty(), "adds into gradients");
      return;
    }
    expect(head || work.forward, "comes before its forward");
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
    ++group.rounds;
  }

  bool reduces_each() const { return inspection_.options.reduce_each_micro_batch && split_.num_data_ranks > 1; }

  void check_accumulate(const Instruction& instruction) {
    Group& group = groups_[instruction.group];
    expect(!reduces_each(), "sums on this rank alone");
    expect(instruction.micro_batch == split_.micro_batch(instruction.round, rank()), "is not this rank's work");
    check_slot(group, instruction.micro_batch);
    check_round(group, instruction);
    if (split_.num_data_ranks == 1) group.complete = group.rounds == split_.rounds();
  }

  void check_reduce(const Instruction& instruction) {
    Group& group = groups_[instruction.group];
    const bool scatter = instruction.reduce == ReduceKind::reduce_scatter;
    expect(split_.num_data_ranks > 1, "has no other rank");
    expect(reduces_each() == (instruction.reduce != ReduceKind::all_reduce), "is not how this run reduces");
    expect(instruction.element_count == chain_.groups[instruction.group].numel, "has a wrong count");
    const int participants = scatter ? split_.ranks_in_round(instruction.round) : split_.num_data_ranks;
    expect(instruction.participants == participants, "has " + std::to_string(instruction.participants) +
                                                         " participants instead of " + std::to_string(participants));
    if (scatter) {
      const int micro_batch = split_.micro_batch(instruction.round, rank());
      if (micro_batch >= 0) check_slot(group, micro_batch);
      check_round(group, instruction);
      return;
    }
    expect(!instruction.first, "cannot be a first sum");
    expect(instruction.round == split_.rounds() - 1, "is of another round than the last");
    expect(!group.complete, "comes twice");
    expect(group.rounds == (reduces_each() ? split_.rounds() : own_rounds_),
           "comes before this rank's sum is complete");
    group.complete = true;
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
    expect(chain_.groups[instruction.group].trainable, "changes a frozen group");
    expect(!group.stepped, "comes twice");
    expect(normed_ && group.complete, "comes before norm or sum");
    group.stepped = true;
  }

  void check_end() {
    expect(counted_, "count is missing");
    expect(reported_, "report is missing");
    expect(normed_, "norm is missing");
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      expect(!chain_.groups[group].trainable || groups_[group].stepped,
             "step " + chain_.groups[group].name + " is missing");
    }
    for (int unit = 0; unit < static_cast<int>(chain_.units.size()); ++unit) {
      const bool head = unit == static_cast<int>(chain_.units.size()) - 1;
      for (int micro_batch = rank(); micro_batch < split_.num_micro_batches; micro_batch += split_.num_data_ranks) {
        const Work& work = work_[unit * split_.num_micro_batches + micro_batch];
        expect((head || work.forward) && work.backward,
               chain_.units[unit].name + " does not do micro-batch " + std::to_string(micro_batch));
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
