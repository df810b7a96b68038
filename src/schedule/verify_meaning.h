// check_meaning() at work.
#pragma once
#include <string>
#include <vector>

#include "layout/mesh.h"
#include "schedule/verify_parts.h"

namespace trireme::schedule {

// Walks one rank's instructions in issue order and keeps count of what has been done.
class MeaningChecker {
 public:
  explicit MeaningChecker(Inspection& inspection);  // which outlives it
  void run();                                       // once

 private:
  struct Group {
    int contributors = 0;            // units that give gradients for it
    std::vector<int> contributions;  // per micro-batch: how many of them have, so far
    int rounds = 0;                  // summed into the accumulator so far
    std::size_t completions = 0;     // reductions after the rounds so far
    bool complete = false;           // the accumulator holds the global sum
    bool pending = false;            // it holds that of the step before
    bool stepped = false, snapshotted = false;
    bool gathered_after = false;  // whole weights that are updated in slices: all ranks have all slices
    int gathered = -1;            // sharded or fetched weights: the buffer that holds them whole now
    bool offloaded = false;       // the sum is where the state is
    bool fetched_after = false;   // weights on the device, state on the host: they are those of STEP
    int fetched = -1;             // a slice's buffer on the device, until it is gathered
  };
  struct Work {
    bool forward = false, recompute = false, backward = false;  // the head has only the last, LOSS
    bool offload = false, fetch = false;                        // of its input
  };

  int rank() const { return inspection_.rank; }
  void expect(bool holds, const std::string& what);
  std::string sized_name(const Buffer& buffer) const;
  void check_list(const std::vector<int>& list, const std::vector<Buffer>& expected, const char* verb);
  void check_accesses(const Instruction& instruction);
  void check(const Instruction& instruction);
  const Options& options() const { return inspection_.options; }
  void check_input(const Instruction& instruction);
  void check_once(const Instruction& instruction, bool& done, std::int64_t count);
  void check_unit(const Instruction& instruction);
  void check_contributions(const Instruction& instruction, const UnitSpec& unit);
  void check_end();
  void check_all_work_done();

  // In verify_sums.cpp: gradients of groups.
  void check_slot(const Group& group, int micro_batch);
  void check_round(const Group& group, const Instruction& instruction);
  void check_sum_in_place(int id, const Instruction& instruction);
  void add_round(int id, const Instruction& instruction);
  bool reduces_each(int group) const;
  std::vector<ReduceKind> completions(int group) const;
  void complete_if_done(Group& group, int id);
  void check_accumulate(const Instruction& instruction);
  int participants(int round) const;
  void check_scope(const Instruction& instruction, Scope scope, int participants);
  void check_reduce(const Instruction& instruction);
  void check_norm();

  // In verify_groups.cpp: their weights and state.
  void check_gather(const Instruction& instruction);
  void check_freshness(const Group& group, const std::string& verb);
  void check_live();
  void check_copy(const Instruction& instruction);
  void check_release(const Instruction& instruction);
  void check_step(const Instruction& instruction);
  void check_snapshot(const Instruction& instruction);
  static bool fetches_after_step(const GroupSpec& spec) { return spec.state_on_host && !spec.weights_on_host; }

  Inspection& inspection_;
  const ChainSpec& chain_;
  const MicroBatchSplit split_;
  std::vector<Group> groups_;
  std::vector<Work> work_;  // unit * M + micro-batch
  int own_rounds_ = 0;
  bool counted_ = false, reported_ = false, normed_ = false;
  int index_ = 0;
};

}  // namespace trireme::schedule
