// Places, sizes, roles and numbers.
#include <algorithm>
#include <array>
#include <functional>

#include "schedule/mutation_tools.h"

namespace trireme::schedule {
namespace {

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

// A collective of the same kind on one rank or alike on all: `change` edits it.
bool damage_collective(Programs& programs, const Case& setting, Dice& dice, bool (*fits)(const Instruction&),
                       const std::function<void(Program&, Instruction&)>& change) {
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
      change(programs[rank], i);
      break;
    }
  }
  relower_sometimes(programs, setting, dice);
  return true;
}

bool wrong_count(Programs& programs, const Case& setting, Dice& dice) {
  const std::int64_t slice = 256 * static_cast<std::int64_t>(programs.size());
  const std::int64_t change = dice.chance(50) ? slice : -slice;
  return damage_collective(
      programs, setting, dice, [](const Instruction& i) { return i.op == Op::reduce; },
      [change](Program&, Instruction& i) { i.element_count += change; });
}

bool wrong_participants(Programs& programs, const Case& setting, Dice& dice) {
  return damage_collective(
      programs, setting, dice, [](const Instruction& i) { return i.reduce == ReduceKind::reduce_scatter; },
      [&](Program& program, Instruction& i) {
        i.participants = i.participants > 1 ? i.participants - 1 : 2;
        if (setting.options.slice_of(program.rank) < i.participants) return;
        std::erase(i.reads, find(program, i.reads, BufferKind::gradient_slot));
      });
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
  const BufferKind kind =
      setting.chain.groups[group].adds_in_place ? BufferKind::accumulator : BufferKind::gradient_slot;
  if (dice.chance(50)) toggle_read(instruction, find(program, instruction.writes, kind, group));
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

bool other_work(Programs& programs, const Case&, Dice& dice) {
  Program& program = any_program(programs, dice);
  const int at = pick(program.instructions, dice, [](const Instruction& i) { return i.unit >= 0; });
  if (at < 0) return false;
  int& micro_batch = program.instructions[at].micro_batch;
  micro_batch = micro_batch > 0 ? micro_batch - 1 : micro_batch + 1;
  return true;
}

bool other_scope(Programs& programs, const Case& setting, Dice& dice) {
  if (programs.size() == 1) return false;
  const int turn = dice.between(1, 2);
  return damage_collective(programs, setting, dice, is_collective, [turn](Program&, Instruction& i) {
    i.scope = static_cast<Scope>(1 + (static_cast<int>(i.scope) - 1 + turn) % 3);
  });
}

bool other_reduction(Programs& programs, const Case& setting, Dice& dice) {
  const int turn = dice.between(1, 4);
  return damage_collective(
      programs, setting, dice, [](const Instruction& i) { return i.op == Op::reduce; },
      [turn](Program&, Instruction& i) {
        i.reduce = static_cast<ReduceKind>(1 + (static_cast<int>(i.reduce) - 1 + turn) % 5);
      });
}

// GATHER and RELEASE name another group than their buffers are of.
bool other_group_named(Programs& programs, const Case& setting, Dice& dice) {
  const int groups = static_cast<int>(setting.chain.groups.size());
  if (groups == 1) return false;
  const int turn = dice.between(1, groups - 1);
  return damage_collective(
      programs, setting, dice, [](const Instruction& i) { return i.op == Op::gather || i.op == Op::release; },
      [turn, groups](Program&, Instruction& i) { i.group = (i.group + turn) % groups; });
}

constexpr std::array kContentMutations = {
    Mutation{"early overwrite in the arena", overlap_transient},
    Mutation{"early overwrite of persistent", overlap_persistent},
    Mutation{"buffer too small", shrink_buffer},
    Mutation{"wrong element count", wrong_count},
    Mutation{"wrong participants", wrong_participants},
    Mutation{"flipped first", flip_first},
    Mutation{"flipped adds", flip_adds},
    Mutation{"buffer of another micro-batch", other_micro_batch},
    Mutation{"buffer of another group", other_group},
    Mutation{"other micro-batch's work", other_work},
    Mutation{"among other ranks", other_scope},
    Mutation{"another reduction", other_reduction},
    Mutation{"another group named", other_group_named},
    Mutation{"buffer on the other tier", other_tier},
};

}  // namespace

std::span<const Mutation> content_mutations() {
  return kContentMutations;
}

}  // namespace trireme::schedule
