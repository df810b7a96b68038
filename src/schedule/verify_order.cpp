#include <algorithm>
#include <array>

#include "schedule/byte_map.h"
#include "schedule/verify_parts.h"

namespace trireme::schedule {
namespace {

using LaneClock = std::array<int, kNumLanes>;  // per lane, the latest instruction; -1 for none

constexpr LaneClock kNever = [] {
  LaneClock clock{};
  clock.fill(-1);
  return clock;
}();

// What a byte holds, and who has looked at it.
struct Content {
  int buffer = -1;  // which buffer's; -1: nothing that may be read
  int writer = -1;  // -1: it was there before the step
  LaneClock readers = kNever;
};

class OrderChecker {
 public:
  explicit OrderChecker(Inspection& inspection)
      : inspection_(inspection), program_(inspection.program), completed_(program_.instructions.size(), kNever) {}

  void run() {
    compute_clocks();
    for (int id = 0; id < static_cast<int>(program_.buffers.size()); ++id) {
      const BufferKind kind = program_.buffers[id].kind;
      const bool kept = kind == BufferKind::weights || kind == BufferKind::weight_slice || kind == BufferKind::state;
      const bool is_pending = is_sum(kind) || kind == BufferKind::gradient_norm;
      const bool is_read = kind == BufferKind::snapshot && inspection_.options.snapshots == Snapshots::kept;
      if (kept || is_read || (is_pending && begins_with_steps(pass()))) assign(id, {id, -1, kNever});
    }
    for (int index = 0; index < static_cast<int>(program_.instructions.size()); ++index) {
      const Instruction& instruction = program_.instructions[index];
      for (const int id : instruction.reads) read(index, id);
      for (const int id : instruction.writes) check_write(index, id);
      for (const int id : instruction.writes) assign(id, {id, index, kNever});
      for (const int id : instruction.writes) check_held(index, id, " is overwritten by another output");
      if (instruction.op == Op::release) {
        for (const int id : instruction.writes) assign(id, {-1, index, kNever});
      }
    }
    check_end();
  }

 private:
  Pass pass() const { return inspection_.options.pass; }
  static bool is_sum(BufferKind kind) { return kind == BufferKind::accumulator || kind == BufferKind::sum_copy; }
  int lane_of(int index) const { return static_cast<int>(program_.instructions[index].lane); }

  // What has completed when an instruction begins: its lane up to it, its waits, and all that those knew completed.
  void compute_clocks() {
    LaneClock last = kNever;
    for (int index = 0; index < static_cast<int>(program_.instructions.size()); ++index) {
      LaneClock& clock = completed_[index];
      const auto include = [&](int other) {
        for (int lane = 0; lane < kNumLanes; ++lane) clock[lane] = std::max(clock[lane], completed_[other][lane]);
        clock[lane_of(other)] = std::max(clock[lane_of(other)], other);
      };
      int& previous = last[lane_of(index)];
      if (previous >= 0) include(previous);
      for (const int wait : program_.instructions[index].waits) include(wait);
      previous = index;
    }
  }

  template <class F>
  void visit(int id, F f) {
    const Buffer& buffer = program_.buffers[id];
    space(id).visit(buffer.offset, buffer.offset + buffer.bytes, f);
  }
  void assign(int id, const Content& content) {
    const Buffer& buffer = program_.buffers[id];
    space(id).assign(buffer.offset, buffer.offset + buffer.bytes, content);
  }
  ByteMap<Content>& space(int id) { return spaces_[space_of(program_.buffers[id])]; }

  void expect_after(int index, int other, int id, const char* verb) {
    if (other < 0 || other == index || completed_[index][lane_of(other)] >= other) return;
    inspection_.report(index, inspection_.name(index) + " may " + verb + " " + inspection_.buffer_name(id) + " while " +
                                  inspection_.name(other) + " is using those bytes");
  }

  // The bytes of the buffer hold what was last written into it (a write covers all of it).
  void check_held(int index, int id, const std::string& complaint) {
    bool held = true;
    visit(id, [&](Content& content) { held &= content.buffer == id; });
    const std::string name = inspection_.buffer_name(id);
    if (!held)
      inspection_.report(index, index < 0 ? name + complaint : inspection_.name(index) + ": " + name + complaint);
  }

  void read(int index, int id) {
    check_held(index, id, " does not hold what was meant for it");
    visit(id, [&](Content& content) {
      expect_after(index, content.writer, id, "read");
      content.readers[lane_of(index)] = index;
    });
  }

  void check_write(int index, int id) {
    visit(id, [&](Content& content) {
      expect_after(index, content.writer, id, "overwrite");
      for (const int reader : content.readers) expect_after(index, reader, id, "overwrite");
      // Reading and overwriting the same bytes is an update in place only through one and the same buffer.
      if (content.readers[lane_of(index)] == index && content.buffer != id) {
        inspection_.report(index,
                           inspection_.name(index) + " writes " + inspection_.buffer_name(id) + " over its own input");
      }
    });
  }

  // The next step, the log and the checkpoint read these.
  void check_end() {
    for (int id = 0; id < static_cast<int>(program_.buffers.size()); ++id) {
      const Buffer& buffer = program_.buffers[id];
      const bool is_entry = buffer.kind == BufferKind::losses && buffer.micro_batch >= 0;
      const bool is_report = buffer.kind == BufferKind::losses || buffer.kind == BufferKind::token_count;
      if (!is_persistent(buffer.kind) || is_entry || (is_report && pass() == Pass::drain)) continue;
      if (is_sum(buffer.kind) && !leaves_steps(pass())) continue;
      check_held(-1, id, " does not survive the step");
    }
  }

  Inspection& inspection_;
  const Program& program_;
  std::vector<LaneClock> completed_;
  std::array<ByteMap<Content>, kNumSpaces> spaces_;
};

}  // namespace

void check_order(Inspection& inspection) {
  OrderChecker(inspection).run();
}

}  // namespace trireme::schedule
