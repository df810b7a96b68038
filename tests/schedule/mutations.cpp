#include "schedule/mutations.h"

#include <numeric>

#include "schedule/mutation_tools.h"

namespace trireme::schedule {

Program& any_program(Programs& programs, Dice& dice) {
  return programs[dice.below(static_cast<int>(programs.size()))];
}

void reorder(Program& program, const std::vector<int>& order) {
  std::vector<int> place(program.instructions.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
  std::vector<Instruction> instructions;
  for (const int old : order) {
    Instruction instruction = program.instructions[old];
    std::vector<int> waits;
    for (const int wait : instruction.waits) {
      if (place[wait] >= 0) waits.push_back(place[wait]);
    }
    instruction.waits = waits;
    instructions.push_back(instruction);
  }
  program.instructions = instructions;
}

std::vector<int> identity_order(const Program& program) {
  std::vector<int> order(program.instructions.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void relower_sometimes(Programs& programs, const Case& setting, Dice& dice) {
  if (!dice.chance(50)) return;
  for (Program& program : programs) program = lower(program, setting.options);
}

void drop(Program& program, int at) {
  std::vector<int> order = identity_order(program);
  order.erase(order.begin() + at);
  reorder(program, order);
}

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all;
  for (const auto mutations : {order_mutations(), content_mutations()}) {
    all.insert(all.end(), mutations.begin(), mutations.end());
  }
  return all;
}

}  // namespace trireme::schedule
