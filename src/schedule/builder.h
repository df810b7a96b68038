// Appends one rank's buffers and instructions in issue order; build_schedule() is the way in.
#pragma once
#include <vector>

#include "layout/mesh.h"
#include "schedule/build.h"
#include "schedule/visits.h"

namespace trireme::schedule {

inline constexpr std::int64_t kScalarBytes = 16;  // (sum, weight), (norm, clip factor), or a count and room

class Builder {
 public:
  // Arguments that check_arguments() let pass; both outlive it.
  Builder(const ChainSpec& chain, const Options& options, int rank);
  Program build();  // once

 private:
  // -1, and no buffer, where it has no bytes.
  int add_buffer(BufferKind kind, int unit, int group, int micro_batch, std::int64_t bytes, Tier tier = Tier::device);
  // References to instructions hold until the next one is emitted.
  Instruction& emit(Op op, Scope scope = Scope::none);
  static void append(std::vector<int>& list, int buffer);
  void copy_input(Op op, int unit, int micro_batch);
  void add_visit(int index);
  void begin_round();
  Instruction& emit_unit(Op op, int unit, int micro_batch);
  int workspace(int unit, int micro_batch, std::int64_t bytes);
  void add_forward(int unit, int micro_batch);
  void add_gradients(Instruction& instruction);
  void add_loss(int micro_batch);
  void add_recompute(int unit, int micro_batch);
  void add_backward(int unit, int micro_batch);
  void add_norm();
  void add_report();

  // In build_groups.cpp: what happens to a group.
  void add_persistent_buffers();
  void step_for(int visit);
  void gather_for(int index);
  void gather(int group);
  void fetch_slices_for(int index);
  void add_gather(int group, int source, int target);
  Instruction& add_copy(Op op, int group, int source, int target);
  void release_after(int visit);
  void add_accumulate(int group, int micro_batch, int round);
  void add_reduce(ReduceKind kind, Scope scope, int group, int round);
  int size_of(Scope scope) const;
  void add_reduction(int group, int round, int micro_batch);
  void offload_sum(int group);
  int add_weight_copy(int group, Tier tier);
  void add_steps();
  void add_step(int group);
  void update(int group);
  void add_snapshot(int group);

  const ChainSpec& chain_;
  const Options& options_;
  const MicroBatchSplit split_;
  const int lowest_trained_;
  const std::vector<Visit> visits_;
  Program program_;
  std::vector<int> weights_;  // or slices of them
  std::vector<int> state_, accumulators_, sum_copies_, snapshots_, losses_;
  int token_count_ = -1, loss_table_ = -1, gradient_norm_ = -1;
  std::vector<int> gathered_, fetched_;  // the last one
  std::vector<bool> steps_left_, snapshots_left_;
  // Of the round in hand; -1 where there is none (yet).
  std::vector<int> activations_, saved_, boundary_gradients_, slots_;
  std::vector<int> missing_;  // contributions to the groups' gradients still to come
};

}  // namespace trireme::schedule
