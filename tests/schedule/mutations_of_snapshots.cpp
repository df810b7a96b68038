#include <algorithm>
#include <array>

#include "schedule/mutation_tools.h"

namespace trireme::schedule {
namespace {

bool is_snapshot(const Instruction& instruction) {
  return instruction.op == Op::snapshot;
}

// Damages a snapshot of any rank; false where there is none, or where `damage` says that it found nothing to do.
bool damage_snapshot(Programs& programs, const Case& setting, Dice& dice, bool (*damage)(Program&, int, Dice&)) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, is_snapshot);
  if (at < 0 || !damage(program, at, dice)) return false;
  relower_sometimes(programs, setting, dice);
  return true;
}

bool drop_snapshot(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice&) {
    drop(program, at);
    return true;
  });
}

bool repeat_snapshot(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice& dice) {
    std::vector<int> order = identity_order(program);
    order.insert(order.begin() + dice.between(at, static_cast<int>(order.size())), at);
    reorder(program, order);
    return true;
  });
}

// Of the state before: the waits, where they are derived anew, fit.
bool snapshot_before_step(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice& dice) {
    const int group = program.instructions[at].group;
    const auto is_step = [&](const Instruction& i) { return i.op == Op::step && i.group == group; };
    const auto& list = program.instructions;
    const int step = static_cast<int>(std::find_if(list.begin(), list.end(), is_step) - list.begin());
    const int to = dice.between(0, step);
    std::vector<int> order = identity_order(program);
    std::rotate(order.begin() + to, order.begin() + at, order.begin() + at + 1);
    reorder(program, order);
    return true;
  });
}

// Its name alone, or what it copies.
bool snapshot_of_another_group(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice& dice) {
    Instruction& snapshot = program.instructions[at];
    const int own = snapshot.group;
    const int other =
        pick(program.instructions, dice, [&](const Instruction& i) { return is_snapshot(i) && i.group != own; });
    if (other < 0) return false;
    if (dice.chance(50)) {
      snapshot.group = program.instructions[other].group;
    } else {
      snapshot.reads = program.instructions[other].reads;
    }
    return true;
  });
}

// Into that of another group, or where the host keeps something else.
bool snapshot_elsewhere(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice& dice) {
    int& target = program.instructions[at].writes.front();
    const int own = target;
    const auto holds_it = [&](const Buffer& buffer) {
      return &buffer != &program.buffers[own] && buffer.bytes >= program.buffers[own].bytes;
    };
    const int other = pick(program.buffers, dice, holds_it);
    if (other < 0) return false;
    target = other;
    return true;
  });
}

bool snapshot_on_another_lane(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice& dice) {
    program.instructions[at].lane = dice.chance(50) ? Lane::compute : Lane::reduce;
    return true;
  });
}

bool snapshot_without_wait(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const auto waits = [](const Instruction& i) { return is_snapshot(i) && !i.waits.empty(); };
  const int at = pick(program.instructions, dice, waits);
  if (at < 0) return false;
  std::vector<int>& list = program.instructions[at].waits;
  list.erase(list.begin() + dice.below(static_cast<int>(list.size())));
  return true;
}

// The master or the moments are left out.
bool partial_snapshot(Programs& programs, const Case& setting, Dice& dice) {
  return damage_snapshot(programs, setting, dice, [](Program& program, int at, Dice& dice) {
    std::vector<int>& reads = program.instructions[at].reads;
    reads.erase(reads.begin() + dice.below(static_cast<int>(reads.size())));
    return true;
  });
}

constexpr std::array kSnapshotsMutations = {
    Mutation{"dropped", drop_snapshot},
    Mutation{"doubled", repeat_snapshot},
    Mutation{"before its step", snapshot_before_step},
    Mutation{"of another group", snapshot_of_another_group},
    Mutation{"into another buffer", snapshot_elsewhere},
    Mutation{"on another lane", snapshot_on_another_lane},
    Mutation{"without a wait", snapshot_without_wait},
    Mutation{"of a part", partial_snapshot},
};

}  // namespace

std::span<const Mutation> snapshot_mutations() {
  return kSnapshotsMutations;
}

}  // namespace trireme::schedule
