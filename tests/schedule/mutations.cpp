#include "schedule/mutations.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace trireme::schedule {
namespace {

using Programs = std::vector<Program>;

Program& any_program(Programs& programs, Dice& dice) {
  return programs[dice.below(static_cast<int>(programs.size()))];
}

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

// A fault of the builder rather than of the lowering: waits and places fit the damaged schedule.
void relower_sometimes(Programs& programs, const Case& setting, Dice& dice) {
  if (!dice.chance(50)) return;
  for (Program& program : programs) program = lower(program, setting.options);
}

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

void drop(Program& program, int at) {
  std::vector<int> order = identity_order(program);
  order.erase(order.begin() + at);
  reorder(program, order);
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

// In the place of another, or anywhere.
bool overlap_transient(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const auto transient = [](const Buffer& buffer) { return !is_persistent(buffer.kind); };
  const int from = pick(program.buffers, dice, transient);
  if (from < 0) return false;  // none in a drain
  const int to = pick(program.buffers, dice, [&](const Buffer& buffer) {
    return transient(buffer) && buffer.tier == program.buffers[from].tier;
  });
  if (from == to) return false;
  const std::int64_t space = space_bytes(program, program.buffers[from]);
  const int places = static_cast<int>((space - program.buffers[from].bytes) / 256) + 1;
  program.buffers[from].offset = dice.chance(50) ? program.buffers[to].offset : 256 * dice.below(places);
  return true;
}

bool other_tier(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  Buffer& buffer = program.buffers[dice.below(static_cast<int>(program.buffers.size()))];
  if (!uses(program, Lane::copy)) return false;
  buffer.tier = buffer.tier == Tier::host ? Tier::device : Tier::host;
  return true;
}

bool overlap_persistent(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const auto persistent = [](const Buffer& buffer) { return is_persistent(buffer.kind); };
  const int from = pick(program.buffers, dice, persistent);
  const int to = pick(program.buffers, dice, [&](const Buffer& buffer) {
    return persistent(buffer) && buffer.tier == program.buffers[from].tier;
  });
  if (from == to) return false;
  program.buffers[from].offset = program.buffers[to].offset;
  return true;
}

// The error of a planner that counts too small, before places are given.
bool shrink_buffer(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  Buffer& buffer = program.buffers[dice.below(static_cast<int>(program.buffers.size()))];
  if (buffer.bytes < 512) return false;
  buffer.bytes /= 2;
  program = lower(program, setting.options);
  return true;
}

bool wrong_count(Programs& programs, const Case&, Dice& dice) {
  const int at = pick(programs[0].instructions, dice, [](const Instruction& i) { return i.op == Op::reduce; });
  if (at < 0) return false;
  const Instruction wrong = programs[0].instructions[at];
  const bool everywhere = dice.chance(50);
  const int one = dice.below(static_cast<int>(programs.size()));
  const std::int64_t slice = 256 * static_cast<std::int64_t>(programs.size());
  const std::int64_t change = dice.chance(50) ? slice : -slice;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    for (Instruction& i : programs[rank].instructions) {
      const bool same = i.reduce == wrong.reduce && i.group == wrong.group && i.round == wrong.round;
      if (same && (everywhere || rank == one)) i.element_count += change;
    }
  }
  return true;
}

bool wrong_participants(Programs& programs, const Case& setting, Dice& dice) {
  const auto scatters = [](const Instruction& i) { return i.reduce == ReduceKind::reduce_scatter; };
  const int at = pick(programs[0].instructions, dice, scatters);
  if (at < 0) return false;
  const Instruction wrong = programs[0].instructions[at];
  const bool everywhere = dice.chance(50);
  const int one = dice.below(static_cast<int>(programs.size()));
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    for (Instruction& i : programs[rank].instructions) {
      const bool same = i.reduce == wrong.reduce && i.group == wrong.group && i.round == wrong.round;
      if (!same || (!everywhere && rank != one)) continue;
      i.participants = wrong.participants > 1 ? wrong.participants - 1 : 2;
      if (setting.options.slice_of(rank) >= i.participants) {
        std::erase(i.reads, find(programs[rank], i.reads, BufferKind::gradient_slot));
      }
    }
  }
  relower_sometimes(programs, setting, dice);
  return true;
}

// The flag alone, or with the reads that go with it.
void toggle_read(Instruction& instruction, int buffer) {
  const auto found = std::find(instruction.reads.begin(), instruction.reads.end(), buffer);
  if (found == instruction.reads.end()) {
    instruction.reads.push_back(buffer);
  } else {
    instruction.reads.erase(found);
  }
}

bool flip_first(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) {
    return i.op == Op::accumulate || i.reduce == ReduceKind::reduce_scatter;
  });
  if (at < 0) return false;
  Instruction& instruction = program.instructions[at];
  instruction.first = !instruction.first;
  if (dice.chance(50)) toggle_read(instruction, instruction.writes[0]);
  relower_sometimes(programs, setting, dice);
  return true;
}

bool flip_adds(Programs& programs, const Case& setting, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) { return !i.adds.empty(); });
  if (at < 0) return false;
  Instruction& instruction = program.instructions[at];
  const int flipped = dice.below(static_cast<int>(instruction.adds.size()));
  instruction.adds[flipped].flip();
  const int group = setting.chain.units[instruction.unit].gradients[flipped];
  if (dice.chance(50)) toggle_read(instruction, find(program, instruction.writes, BufferKind::gradient_slot, group));
  relower_sometimes(programs, setting, dice);
  return true;
}

// Another buffer in the place of one: of the same kind, and alike but for the micro-batch or the group.
bool swap_buffer(Programs& programs, const Case& setting, Dice& dice, bool (*alike)(const Buffer&, const Buffer&)) {
  Program& program = any_program(programs, dice);
  const auto fits = [&](int id, const Buffer& other) {
    return other.kind == program.buffers[id].kind && alike(other, program.buffers[id]);
  };
  std::vector<int*> uses;
  for (Instruction& instruction : program.instructions) {
    for (std::vector<int>* list : {&instruction.reads, &instruction.writes}) {
      for (int& id : *list) {
        const auto fits_this = [&](const Buffer& other) { return fits(id, other); };
        if (std::any_of(program.buffers.begin(), program.buffers.end(), fits_this)) uses.push_back(&id);
      }
    }
  }
  if (uses.empty()) return false;
  int& id = *uses[dice.below(static_cast<int>(uses.size()))];
  id = pick(program.buffers, dice, [&](const Buffer& other) { return fits(id, other); });
  relower_sometimes(programs, setting, dice);
  return true;
}

bool other_micro_batch(Programs& programs, const Case& setting, Dice& dice) {
  return swap_buffer(programs, setting, dice, [](const Buffer& a, const Buffer& b) {
    return a.unit == b.unit && a.group == b.group && a.micro_batch != b.micro_batch;
  });
}

bool other_group(Programs& programs, const Case& setting, Dice& dice) {
  return swap_buffer(programs, setting, dice, [](const Buffer& a, const Buffer& b) {
    return a.micro_batch == b.micro_batch && a.group != b.group;
  });
}

bool other_lane(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  Lane& lane = program.instructions[dice.below(static_cast<int>(program.instructions.size()))].lane;
  lane = static_cast<Lane>((static_cast<int>(lane) + dice.between(1, kNumLanes - 1)) % kNumLanes);
  return true;
}

bool other_work(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) { return i.unit >= 0; });
  if (at < 0) return false;
  int& micro_batch = program.instructions[at].micro_batch;
  micro_batch = micro_batch > 0 ? micro_batch - 1 : micro_batch + 1;
  return true;
}

// A collective of the same kind on one rank or alike on all: `change` edits it.
bool damage_collective(Programs& programs, const Case& setting, Dice& dice, bool (*fits)(const Instruction&),
                       const std::function<void(Instruction&)>& change) {
  const int at = pick(programs[0].instructions, dice, fits);
  if (at < 0) return false;
  const Instruction wrong = programs[0].instructions[at];
  const bool everywhere = dice.chance(50);
  const int one = dice.below(static_cast<int>(programs.size()));
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    if (!everywhere && rank != one) continue;
    int skip = 0;  // gathers of a group come several times: the same one on all ranks
    const auto is_same = [&](const Instruction& i) {
      return i.op == wrong.op && i.reduce == wrong.reduce && i.group == wrong.group && i.round == wrong.round;
    };
    for (int i = 0; i < at; ++i) skip += is_same(programs[0].instructions[i]);
    for (Instruction& i : programs[rank].instructions) {
      if (!is_same(i) || skip-- > 0) continue;
      change(i);
      break;
    }
  }
  relower_sometimes(programs, setting, dice);
  return true;
}

bool other_scope(Programs& programs, const Case& setting, Dice& dice) {
  if (programs.size() == 1) return false;
  const int turn = dice.between(1, 2);
  return damage_collective(programs, setting, dice, is_collective, [turn](Instruction& i) {
    i.scope = static_cast<Scope>(1 + (static_cast<int>(i.scope) - 1 + turn) % 3);
  });
}

bool other_reduction(Programs& programs, const Case& setting, Dice& dice) {
  const int turn = dice.between(1, 4);
  return damage_collective(
      programs, setting, dice, [](const Instruction& i) { return i.op == Op::reduce; },
      [turn](Instruction& i) { i.reduce = static_cast<ReduceKind>(1 + (static_cast<int>(i.reduce) - 1 + turn) % 5); });
}

// GATHER and RELEASE name another group than their buffers are of.
bool other_group_named(Programs& programs, const Case& setting, Dice& dice) {
  const int groups = static_cast<int>(setting.chain.groups.size());
  if (groups == 1) return false;
  const int turn = dice.between(1, groups - 1);
  return damage_collective(
      programs, setting, dice, [](const Instruction& i) { return i.op == Op::gather || i.op == Op::release; },
      [turn, groups](Instruction& i) { i.group = (i.group + turn) % groups; });
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

constexpr std::array kMutations = {
    Mutation{"removed wait", remove_wait},
    Mutation{"replaced wait", replace_wait},
    Mutation{"swapped collectives, one rank", swap_collectives_of_one},
    Mutation{"swapped collectives, all ranks", swap_collectives_of_all},
    Mutation{"dropped collective, one rank", drop_collective},
    Mutation{"dropped collective, all ranks", drop_collective_of_all},
    Mutation{"dropped instruction", drop_instruction},
    Mutation{"repeated instruction", repeat_instruction},
    Mutation{"instruction moved earlier", move_earlier},
    Mutation{"early overwrite in the arena", overlap_transient},
    Mutation{"early overwrite of persistent", overlap_persistent},
    Mutation{"buffer too small", shrink_buffer},
    Mutation{"wrong element count", wrong_count},
    Mutation{"wrong participants", wrong_participants},
    Mutation{"flipped first", flip_first},
    Mutation{"flipped adds", flip_adds},
    Mutation{"buffer of another micro-batch", other_micro_batch},
    Mutation{"buffer of another group", other_group},
    Mutation{"other lane", other_lane},
    Mutation{"other micro-batch's work", other_work},
    Mutation{"rounds in another order", swap_rounds},
    Mutation{"among other ranks", other_scope},
    Mutation{"another reduction", other_reduction},
    Mutation{"another group named", other_group_named},
    Mutation{"dropped offload or fetch", drop_copy},
    Mutation{"offload or fetch elsewhere", move_copy},
    Mutation{"offload or fetch turned around", turn_copy},
    Mutation{"buffer on the other tier", other_tier},
};

}  // namespace

std::span<const Mutation> all_mutations() {
  return kMutations;
}

}  // namespace trireme::schedule
