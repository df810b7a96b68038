// Sums of gradients: every round once and in order, complete before they are used.
#include <algorithm>

#include "schedule/verify_meaning.h"

namespace trireme::schedule {

void MeaningChecker::check_slot(const Group& group, int micro_batch) {
  expect(group.contributions[micro_batch] == group.contributors, "comes before the gradient is complete");
}

// The sum of the next round, neither left out nor out of order.
void MeaningChecker::check_round(const Group& group, const Instruction& instruction) {
  expect(instruction.round == group.rounds, "sums round " + std::to_string(instruction.round) + " where round " +
                                                std::to_string(group.rounds) + " is due");
  expect(!group.complete, "comes after the sum was completed");
  expect(!group.pending, "comes before the step that the sum is for");
}

// Each contribution is of the round that is due, which the last one ends.
void MeaningChecker::check_sum_in_place(int id, const Instruction& instruction) {
  Group& group = groups_[id];
  check_round(group, instruction);
  if (group.contributions[instruction.micro_batch] < group.contributors) return;
  ++group.rounds;
  complete_if_done(group, id);
}

void MeaningChecker::add_round(int id, const Instruction& instruction) {
  Group& group = groups_[id];
  check_round(group, instruction);
  expect(!chain_.groups[id].adds_in_place, "sums what was added in place");
  expect(instruction.first == (group.rounds == 0),
         instruction.first ? "overwrites the sum" : "adds to the sum of the step before");
  ++group.rounds;
  complete_if_done(group, id);
}

// Whether every round's slots go to other ranks at once.
bool MeaningChecker::reduces_each(int group) const {
  return split_.num_data_ranks > 1 && (options().reduce_each_micro_batch || chain_.groups[group].shards_gradients);
}

// The kinds of reduction that complete a group's sum after its rounds, in order.
std::vector<ReduceKind> MeaningChecker::completions(int group) const {
  std::vector<ReduceKind> kinds;
  const bool slices = chain_.groups[group].shards_optimizer;
  if (split_.num_data_ranks == 1) return kinds;
  if (slices && !reduces_each(group)) kinds.push_back(ReduceKind::scatter_sums);
  if (!slices) kinds.push_back(reduces_each(group) ? ReduceKind::all_gather : ReduceKind::all_reduce);
  if (options().replicas > 1) kinds.push_back(ReduceKind::sum_replicas);
  return kinds;
}

void MeaningChecker::complete_if_done(Group& group, int id) {
  const int rounds = reduces_each(id) ? split_.rounds() : own_rounds_;
  group.complete = group.rounds == rounds && group.completions == completions(id).size();
}

void MeaningChecker::check_accumulate(const Instruction& instruction) {
  Group& group = groups_[instruction.group];
  expect(!reduces_each(instruction.group), "sums on this rank alone");
  expect(instruction.micro_batch == split_.micro_batch(instruction.round, rank()), "is not this rank's work");
  check_slot(group, instruction.micro_batch);
  add_round(instruction.group, instruction);
}

int MeaningChecker::participants(int round) const {
  const int before = options().replica_of(rank()) * options().shard_ranks();
  return std::clamp(split_.ranks_in_round(round) - before, 0, options().shard_ranks());
}

void MeaningChecker::check_scope(const Instruction& instruction, Scope scope, int participants) {
  expect(instruction.scope == scope, "is among the wrong ranks");
  expect(instruction.participants == participants, "has " + std::to_string(instruction.participants) +
                                                       " participants instead of " + std::to_string(participants));
}

void MeaningChecker::check_reduce(const Instruction& instruction) {
  Group& group = groups_[instruction.group];
  expect(split_.num_data_ranks > 1, "has no other rank");
  expect(instruction.element_count == chain_.groups[instruction.group].numel, "has a wrong count");
  if (instruction.reduce == ReduceKind::reduce_scatter) {
    expect(reduces_each(instruction.group), "is not how this run reduces");
    check_scope(instruction, Scope::shards, participants(instruction.round));
    const int micro_batch = split_.micro_batch(instruction.round, rank());
    if (micro_batch >= 0) check_slot(group, micro_batch);
    return add_round(instruction.group, instruction);
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

void MeaningChecker::check_norm() {
  expect(!normed_, "comes twice");
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    expect(!chain_.groups[group].trainable || groups_[group].complete,
           "comes before the gradient of " + chain_.groups[group].name + " is complete");
  }
  normed_ = true;
}

}  // namespace trireme::schedule
