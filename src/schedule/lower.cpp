#include "schedule/lower.h"

#include <algorithm>
#include <array>
#include <functional>

#include "schedule/byte_map.h"
#include "schedule/place.h"

namespace trireme::schedule {
namespace {

using LaneIndices = std::array<int, kNumLanes>;  // per lane an instruction index, -1 for none

constexpr LaneIndices kNone = [] {
  LaneIndices none{};
  none.fill(-1);
  return none;
}();

int lane_of(const Instruction& instruction) {
  return static_cast<int>(instruction.lane);
}

bool is_unit_work(const Instruction& instruction) {
  return instruction.op == Op::forward || instruction.op == Op::loss || instruction.op == Op::backward;
}

// How many further units may run, after the instruction of another lane that reads the buffer last, before anyone needs
// its bytes again: the units beside which that is to run.
int grace_of(const Buffer& buffer, const Options& options) {
  if (buffer.kind == BufferKind::gradient_slot) return options.gradient_slots - 1;
  const bool awaits_gather = buffer.kind == BufferKind::weight_copy && buffer.tier == Tier::device;
  return awaits_gather ? options.gather_ahead : 0;
}

int end_of_grace(const Program& program, int reader, int grace) {
  const int last = static_cast<int>(program.instructions.size()) - 1;
  int end = reader;
  for (int units = 0; units < grace && end < last;) {
    if (is_unit_work(program.instructions[++end])) ++units;
  }
  return end;
}

// Of every buffer, in issue order. A buffer that nothing touches lives at instruction 0.
std::vector<Lifetime> find_lifetimes(const Program& program, const Options& options) {
  const std::size_t count = program.buffers.size();
  std::vector<Lifetime> lifetimes(count);
  std::vector<bool> touched(count, false);
  for (std::size_t i = 0; i < count; ++i) lifetimes[i].bytes = program.buffers[i].bytes;
  const auto touch = [&](int buffer, int index) {
    if (!touched[buffer]) lifetimes[buffer].begin = index;
    touched[buffer] = true;
    lifetimes[buffer].end = index;
  };
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    for (const int buffer : program.instructions[index].reads) touch(buffer, index);
    for (const int buffer : program.instructions[index].writes) touch(buffer, index);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const int grace = grace_of(program.buffers[i], options);
    if (grace == 0 || !touched[i]) continue;
    const Instruction& writer = program.instructions[lifetimes[i].begin];
    const Instruction& reader = program.instructions[lifetimes[i].end];
    if (writer.lane != reader.lane) lifetimes[i].end = end_of_grace(program, lifetimes[i].end, grace);
  }
  return lifetimes;
}

void place_buffers(Program& program, const Options& options) {
  const std::vector<Lifetime> all = find_lifetimes(program, options);
  const auto place_tier = [&](Tier tier, std::int64_t& persistent_bytes, std::int64_t& arena_bytes) {
    std::vector<Lifetime> transient;
    std::vector<int> ids;
    persistent_bytes = 0;
    for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
      Buffer& buffer = program.buffers[id];
      if (buffer.tier != tier) continue;
      if (is_persistent(buffer.kind)) {
        buffer.offset = persistent_bytes;
        persistent_bytes += align_place(buffer.bytes);
      } else {
        transient.push_back(all[id]);
        ids.push_back(id);
      }
    }
    const Placement placement = place(transient);
    for (std::size_t i = 0; i < ids.size(); ++i) program.buffers[ids[i]].offset = placement.offsets[i];
    arena_bytes = placement.bytes;
  };
  place_tier(Tier::device, program.persistent_bytes, program.arena_bytes);
  place_tier(Tier::host, program.host_persistent_bytes, program.host_arena_bytes);
}

// Who must be done with a byte before it may be read or overwritten.
struct Users {
  int writer = -1;
  LaneIndices readers = kNone;  // the latest of each lane since the writer; its lane did the earlier ones before
};

class WaitFinder {
 public:
  WaitFinder(Program& program, bool overlap)
      : program_(program), overlap_(overlap), done_(program.instructions.size(), kNone) {}

  void run() {
    for (int index = 0; index < static_cast<int>(program_.instructions.size()); ++index) {
      add_waits(index, find_needs(index));
      record(index);
    }
  }

 private:
  template <class F>
  void visit(int id, F f) {
    const Buffer& buffer = program_.buffers[id];
    space(id).visit(buffer.offset, buffer.offset + buffer.bytes, f);
  }

  ByteMap<Users>& space(int id) { return spaces_[space_of(program_.buffers[id])]; }

  LaneIndices find_needs(int index) {
    LaneIndices needs = kNone;
    const auto need = [&](int other) {
      if (other >= 0) raise(needs, lane_of(program_.instructions[other]), other);
    };
    if (!overlap_) need(index - 1);
    const Instruction& instruction = program_.instructions[index];
    for (const int id : instruction.reads) visit(id, [&](Users& users) { need(users.writer); });
    for (const int id : instruction.writes) {
      visit(id, [&](Users& users) {
        need(users.writer);
        for (const int reader : users.readers) need(reader);
      });
    }
    return needs;
  }

  // Latest need first: waiting for it may imply the others.
  void add_waits(int index, LaneIndices needs) {
    Instruction& instruction = program_.instructions[index];
    instruction.waits.clear();
    LaneIndices& done = done_[index];
    const int previous = last_of_lane_[lane_of(instruction)];
    if (previous >= 0) include(done, previous);
    std::sort(needs.begin(), needs.end(), std::greater<>());
    for (const int other : needs) {
      if (other < 0 || done[lane_of(program_.instructions[other])] >= other) continue;
      instruction.waits.push_back(other);
      include(done, other);
    }
    last_of_lane_[lane_of(instruction)] = index;
  }

  void record(int index) {
    const Instruction& instruction = program_.instructions[index];
    for (const int id : instruction.reads) {
      visit(id, [&](Users& users) { users.readers[lane_of(instruction)] = index; });
    }
    for (const int id : instruction.writes) {
      const Buffer& buffer = program_.buffers[id];
      space(id).assign(buffer.offset, buffer.offset + buffer.bytes, Users{index, kNone});
    }
  }

  static void raise(LaneIndices& indices, int lane, int index) { indices[lane] = std::max(indices[lane], index); }

  // `other` has completed, and with it all that it knew to be done.
  void include(LaneIndices& done, int other) {
    for (int lane = 0; lane < kNumLanes; ++lane) raise(done, lane, done_[other][lane]);
    raise(done, lane_of(program_.instructions[other]), other);
  }

  Program& program_;
  const bool overlap_;
  std::vector<LaneIndices> done_;  // per instruction: what has completed when it begins
  LaneIndices last_of_lane_ = kNone;
  std::array<ByteMap<Users>, kNumSpaces> spaces_;
};

}  // namespace

Program lower(Program schedule, const Options& options) {
  place_buffers(schedule, options);
  WaitFinder(schedule, options.overlap).run();
  return schedule;
}

}  // namespace trireme::schedule
