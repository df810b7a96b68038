// Waits, lanes, copies, and what is missing, doubled or elsewhere.
#include <algorithm>
#include <array>

#include "schedule/mutation_tools.h"

namespace trireme::schedule {
namespace {

bool remove_wait(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) { return !i.waits.empty(); });
  if (at < 0) return false;
  auto& waits = program.instructions[at].waits;
  waits.erase(waits.begin() + dice.below(static_cast<int>(waits.size())));
  return true;
}

bool replace_wait(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) { return !i.waits.empty(); });
  if (at < 0) return false;
  auto& waits = program.instructions[at].waits;
  // Mostly an earlier one than it should be; sometimes anything, itself, what comes later and what is not there.
  int& wait = waits[dice.below(static_cast<int>(waits.size()))];
  wait = dice.chance(70) ? dice.below(wait + 1) : dice.between(-1, static_cast<int>(program.instructions.size()));
  return true;
}

// Of two neighbours among the collectives, the later one is issued where the earlier was, or the earlier one where the
// later was.
void swap_collectives(Program& program, int first, bool up) {
  std::vector<int> collectives;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    if (is_collective(program.instructions[i])) collectives.push_back(i);
  }
  std::vector<int> order = identity_order(program);
  const auto begin = order.begin() + collectives[first], end = order.begin() + collectives[first + 1] + 1;
  std::rotate(begin, up ? end - 1 : begin + 1, end);
  reorder(program, order);
}

int num_collectives(const Program& program) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(), is_collective));
}

bool swap_collectives_of_one(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  if (programs.size() == 1 || num_collectives(program) < 2) return false;
  swap_collectives(program, dice.below(num_collectives(program) - 1), dice.chance(50));
  return true;
}

bool swap_collectives_of_all(Programs& programs, const Case& setting, Dice& dice) {
  if (programs.size() == 1 || num_collectives(programs[0]) < 2) return false;
  const int first = dice.below(num_collectives(programs[0]) - 1);
  for (Program& program : programs) swap_collectives(program, first, dice.chance(50));
  relower_sometimes(programs, setting, dice);
  return true;
}

bool drop_collective(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, is_collective);
  if (at < 0) return false;
  drop(program, at);
  return true;
}

bool drop_collective_of_all(Programs& programs, const Case& setting, Dice& dice) {
  if (num_collectives(programs[0]) == 0) return false;
  const int drawn = dice.below(num_collectives(programs[0]));
  for (Program& program : programs) {
    int at = 0;
    for (int left = drawn; !is_collective(program.instructions[at]) || left-- > 0;) ++at;
    drop(program, at);
  }
  relower_sometimes(programs, setting, dice);
  return true;
}

bool drop_instruction(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) { return !is_collective(i); });
  drop(program, at);
  relower_sometimes(programs, setting, dice);
  return true;
}

bool is_copy(const Instruction& instruction) {
  return instruction.op == Op::offload || instruction.op == Op::fetch;
}

bool drop_copy(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, is_copy);
  if (at < 0) return false;
  drop(program, at);
  relower_sometimes(programs, setting, dice);
  return true;
}

// Anywhere before or behind.
bool move_copy(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int from = pick(program.instructions, dice, is_copy);
  if (from < 0) return false;
  const int to = dice.below(static_cast<int>(program.instructions.size()));
  std::vector<int> order = identity_order(program);
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  reorder(program, order);
  relower_sometimes(programs, setting, dice);
  return true;
}

// It reads its target and writes its source.
bool turn_copy(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, is_copy);
  if (at < 0) return false;
  Instruction& copy = program.instructions[at];
  std::swap(copy.reads, copy.writes);
  if (dice.chance(50)) copy.op = copy.op == Op::offload ? Op::fetch : Op::offload;
  relower_sometimes(programs, setting, dice);
  return true;
}

bool repeat_instruction(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  std::vector<int> order = identity_order(program);
  const int at = dice.below(static_cast<int>(order.size()));
  order.insert(order.begin() + at, at);
  reorder(program, order);
  relower_sometimes(programs, setting, dice);
  return true;
}

bool move_earlier(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int last = static_cast<int>(program.instructions.size()) - 1;
  const int from = dice.between(1, last);
  const int to = dice.between(std::max(0, from - 6), from - 1);
  std::vector<int> order = identity_order(program);
  std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
  reorder(program, order);
  relower_sometimes(programs, setting, dice);
  return true;
}

bool other_lane(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  Lane& lane = program.instructions[dice.below(static_cast<int>(program.instructions.size()))].lane;
  lane = static_cast<Lane>((static_cast<int>(lane) + dice.between(1, kNumLanes - 1)) % kNumLanes);
  return true;
}

// Two full rounds change places on all ranks, and everything fits but the order of summation.
bool swap_rounds(Programs& programs, const Case& setting, Dice& dice) {
  const int ranks = setting.options.world_size, full_rounds = setting.options.num_micro_batches / ranks;
  if (full_rounds < 2) return false;
  const int round = dice.below(full_rounds - 1);
  const auto swap_micro_batch = [&](int& micro_batch) {
    if (micro_batch < 0) return;
    if (micro_batch / ranks == round) {
      micro_batch += ranks;
    } else if (micro_batch / ranks == round + 1) {
      micro_batch -= ranks;
    }
  };
  for (Program& program : programs) {
    for (Buffer& buffer : program.buffers) swap_micro_batch(buffer.micro_batch);
    for (Instruction& i : program.instructions) {
      swap_micro_batch(i.micro_batch);
      const bool summed_later = i.op == Op::reduce && i.reduce != ReduceKind::reduce_scatter;
      if (!summed_later && i.round == round) {
        i.round = round + 1;
      } else if (!summed_later && i.round == round + 1) {
        i.round = round;
      }
      if (i.op == Op::report) std::swap(i.reads[round], i.reads[round + 1]);
    }
  }
  return true;
}

constexpr std::array kOrderMutations = {
    Mutation{"removed wait", remove_wait},
    Mutation{"replaced wait", replace_wait},
    Mutation{"swapped collectives, one rank", swap_collectives_of_one},
    Mutation{"swapped collectives, all ranks", swap_collectives_of_all},
    Mutation{"dropped collective, one rank", drop_collective},
    Mutation{"dropped collective, all ranks", drop_collective_of_all},
    Mutation{"dropped instruction", drop_instruction},
    Mutation{"repeated instruction", repeat_instruction},
    Mutation{"instruction moved earlier", move_earlier},
    Mutation{"other lane", other_lane},
    Mutation{"rounds in another order", swap_rounds},
    Mutation{"dropped offload or fetch", drop_copy},
    Mutation{"offload or fetch elsewhere", move_copy},
    Mutation{"offload or fetch turned around", turn_copy},
};

}  // namespace

std::span<const Mutation> order_mutations() {
  return kOrderMutations;
}

}  // namespace trireme::schedule
