// What the mutations share.
#pragma once
#include <span>
#include <vector>

#include "schedule/mutations.h"

namespace trireme::schedule {

using Programs = std::vector<Program>;

Program& any_program(Programs& programs, Dice& dice);

// A random index of those that hold; -1 when there is none.
template <class Items, class Predicate>
int pick(const Items& items, Dice& dice, Predicate holds) {
  std::vector<int> candidates;
  for (int i = 0; i < static_cast<int>(items.size()); ++i) {
    if (holds(items[i])) candidates.push_back(i);
  }
  return candidates.empty() ? -1 : candidates[dice.below(static_cast<int>(candidates.size()))];
}

// The instructions in a new order: order[k] is the old index of the k-th. Those left out take the waits on them along.
void reorder(Program& program, const std::vector<int>& order);

std::vector<int> identity_order(const Program& program);

// A fault of the builder rather than of the lowering: waits and places fit the damaged schedule.
void relower_sometimes(Programs& programs, const Case& setting, Dice& dice);

void drop(Program& program, int at);

// By what they damage: when things happen; places, sizes, roles and numbers.
std::span<const Mutation> order_mutations();
std::span<const Mutation> content_mutations();

}  // namespace trireme::schedule
