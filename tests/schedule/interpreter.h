// Runs lowered programs of all ranks on symbols, in a random interleaving that their waits allow. The referee of the
// verifier: it shares no code with it and knows only what the executor would do.
//
// Memory is bytes; what a byte holds is (hash of the value written over it, its position in that value). Every
// instruction takes time: it reads its inputs when it begins and again when it ends, and until then its outputs hold
// garbage. Whoever reads or writes those bytes meanwhile changes a value. A collective ends on a rank once all ranks
// have begun theirs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/chains.h"

namespace trireme::schedule {

struct Outcome {
  std::string failure;  // "hang", "collectives do not match", "out of bounds"; empty when it ran to its end
  std::vector<std::uint64_t>
      end;  // per rank: weights, state, norm, token count, loss table and pending sums at the end
  std::vector<std::uint64_t> common;  // per rank: those of it that all ranks hold alike
  bool snapshots_hold = true;         // what was taken is the state at the end
  bool operator==(const Outcome&) const = default;
};

// Resolves places once, then runs any number of interleavings. The case and the programs must outlive it.
class Interpreter {
 public:
  Interpreter(const Case& setting, std::span<const Program> programs);
  Outcome run(std::uint64_t seed);

 private:
  // Bytes while the places are being resolved, then cells. The spaces of a program come one after the other.
  struct Range {
    std::int64_t begin = 0, end = 0;
  };
  struct Output {
    Range range;
    bool in_place = false;
    std::uint64_t old = 0, garbage = 0;
  };
  struct Node {
    const Instruction* instruction = nullptr;
    std::vector<Range> inputs;
    std::vector<Output> outputs;
    bool broken = false;              // would touch memory that is not there
    std::vector<std::uint64_t> seen;  // what the inputs held when it began
    int meeting = -1;
    bool done = false;
  };
  // A snapshot, and what it is to be a copy of.
  struct Copied {
    Range copy;
    std::vector<Range> state;
  };
  struct Cell {
    std::uint64_t value = 0;
    std::int64_t position = 0;
  };
  struct Rank {
    const Program* program = nullptr;
    std::vector<std::int64_t> borders;  // cell i is bytes borders[i] .. borders[i + 1]
    std::vector<Cell> initial, cells;
    std::vector<Node> nodes;
    std::vector<Range> kept;      // what the end state is made of
    std::vector<bool> is_common;  // per range of that: all ranks hold it alike
    std::vector<Copied> snapshots;
    std::vector<std::vector<int>> lanes;  // instructions of each lane
    std::vector<std::size_t> next;        // per lane, its head
    std::vector<bool> running;            // per lane, its head has begun
    std::size_t num_meetings = 0;         // collectives begun
  };

  std::int64_t true_bytes(const Instruction& instruction, const Buffer& buffer) const;
  std::int64_t kept_bytes(int group, std::int64_t element_bytes, bool sharded) const;
  static Range place(const Rank& rank, int buffer, std::int64_t bytes, bool& broken);
  void resolve(Rank& rank) const;
  Node resolve(const Rank& rank, const Instruction& instruction) const;
  void resolve_unit(const Rank& rank, Node& node) const;
  void resolve_sum(const Rank& rank, Node& node) const;
  // Of a group's buffer, or where it holds this rank's slice only, that.
  std::vector<Range> slices(const Rank& rank, int buffer, std::int64_t element_bytes, bool sharded, Node& node) const;
  void resolve_reduction(const Rank& rank, Node& node) const;
  void resolve_gather(const Rank& rank, Node& node) const;
  Range updated(const Rank& rank, int buffer, bool& broken) const;
  bool is_kept(const Buffer& buffer) const;
  void resolve_snapshots(Rank& rank, bool& broken) const;
  void resolve_own(const Rank& rank, Node& node) const;
  static void make_cells(Rank& rank);
  void fill(Rank& rank) const;

  static std::uint64_t read(const Rank& rank, Range range);
  static void write(Rank& rank, Range range, std::uint64_t value);
  static bool holds(const Rank& rank, Range range, std::uint64_t value);

  void reset();
  bool can_begin(const Rank& rank, std::size_t lane) const;
  bool can_end(const Rank& rank, std::size_t lane) const;
  void begin(Rank& rank, std::size_t lane);
  void end(Rank& rank, std::size_t lane);
  // Those that take part in the collective that this rank has begun, in order; null where one has not begun it.
  std::vector<const Node*> peers(const Rank& rank, const Node& node) const;
  void check_meeting(const std::vector<const Node*>& meeting);
  std::uint64_t result(const Rank& rank, const Node& node, std::size_t output) const;
  static std::uint64_t copied(const std::vector<std::uint64_t>& state);
  std::uint64_t reduced(const Rank& rank, const Node& node, std::size_t output) const;

  const Case& setting_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<const Node*>> meetings_;  // by collective and rank: the one that has begun it
  std::uint64_t garbage_ = 0;
  std::string failure_;
};

}  // namespace trireme::schedule
