// What becomes of groups' weights and state: gathered, copied, stepped and released in turn.
#include <algorithm>

#include "schedule/verify_meaning.h"

namespace trireme::schedule {

void MeaningChecker::check_gather(const Instruction& instruction) {
  const GroupSpec& spec = chain_.groups[instruction.group];
  Group& group = groups_[instruction.group];
  expect(instruction.scope == Scope::shards && instruction.participants == options().shard_ranks(), "leaves ranks out");
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
void MeaningChecker::check_freshness(const Group& group, const std::string& verb) {
  expect(!group.pending, verb + " weights before their step");
  expect(!group.stepped || begins_with_steps(options().pass), verb + " weights that were stepped already");
}

// More than max_live only where the unit that works next reads all of it; a rank without work has none.
void MeaningChecker::check_live() {
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

void MeaningChecker::check_copy(const Instruction& instruction) {
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

void MeaningChecker::check_release(const Instruction& instruction) {
  Group& group = groups_[instruction.group];
  const int released = instruction.writes.empty() ? -1 : instruction.writes.front();
  expect(chain_.groups[instruction.group].is_gathered() && group.gathered >= 0, "releases what is not gathered");
  expect(released == group.gathered, "releases another gathering than the last");
  group.gathered = -1;
}

void MeaningChecker::check_step(const Instruction& instruction) {
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

// A pass has one STEP of a group, so what is copied behind it is the state of that step and of no other.
void MeaningChecker::check_snapshot(const Instruction& instruction) {
  Group& group = groups_[instruction.group];
  expect(instruction.participants == 0 && instruction.element_count == 0, "is no collective");
  expect(options().snapshots == Snapshots::taken, "is not for this pass to take");
  expect(chain_.groups[instruction.group].trainable, "copies a frozen group");
  expect(group.stepped, "comes before its step");
  expect(!group.snapshotted, "comes twice");
  group.snapshotted = true;
}

}  // namespace trireme::schedule
