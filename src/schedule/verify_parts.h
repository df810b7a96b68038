// The parts of verify(). Together they are the proof: (1) each rank's instructions, taken in issue order, compute the
// step that the chain asks for (meaning); (2) all accesses to the same bytes are ordered by lanes and waits, and each
// read finds what was last meant for it (order), so every interleaving computes what the issue order does; (3) all
// ranks issue the same collectives in the same order, and waits point backwards, so the system runs to its end: the
// earliest instruction of a rank that has not completed waits for nothing but a collective that every other rank
// reaches too.
//
// None of it shares code with build and lower beyond the data structures: a rule written down twice is checked.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "schedule/verify.h"

namespace trireme::schedule {

// What one rank's checks share: whose program, and where findings go.
class Inspection {
 public:
  Inspection(const ChainSpec& chain, const Options& options, const Program& program, int rank);

  const ChainSpec& chain;
  const Options& options;
  const Program& program;
  const int rank;

  void report(int instruction, const std::string& what);  // dropped beyond the first few of a rank: one error has many
  bool clean() const { return findings_.empty(); }
  const std::vector<Finding>& findings() const { return findings_; }
  std::string name(int instruction) const;
  std::string buffer_name(int buffer) const;

 private:
  std::vector<Finding> findings_;
};

// Indices, lanes, waits, places, sizes of spaces: what the other parts rely on so as not to read out of bounds.
void check_structure(Inspection& inspection);

// Whether the unit, or one before it, gives a gradient. The head's LOSS is there all the same.
bool has_backward(const ChainSpec& chain, int unit);

// The buffers that the instruction must read and write, in documented order and without empty ones; offsets are not
// set. Needs indices in range.
struct Accesses {
  std::vector<Buffer> reads, writes;
};
Accesses expected_accesses(const ChainSpec& chain, const Options& options, int rank, const Instruction& instruction);

// What outlives a pass, used by it or not; offsets are not set.
std::vector<Buffer> expected_persistent(const ChainSpec& chain, const Options& options, int rank);

// Buffers by role and size, flags, counts and participants, every micro-batch once, sums complete and in order.
void check_meaning(Inspection& inspection);

// Happens-before over shared bytes, and what the bytes hold when they are read.
void check_order(Inspection& inspection);

}  // namespace trireme::schedule
