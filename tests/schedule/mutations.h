// Seeded damage to lowered programs.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "schedule/chains.h"

namespace trireme::schedule {

struct Mutation {
  std::string_view name;
  // Damages one place (on one rank, or alike on all). False when the programs have no such place; they are unchanged
  // then.
  bool (*apply)(std::vector<Program>& programs, const Case& setting, Dice& dice);
};

std::vector<Mutation> all_mutations();

// Damage to a SNAPSHOT, harmful or not: none of it is to pass.
std::span<const Mutation> snapshot_mutations();

}  // namespace trireme::schedule
