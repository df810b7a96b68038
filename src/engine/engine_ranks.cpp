// What an engine does together with other ranks: on the host through its communicator, on devices through NCCL.
#include "base/failpoint.h"
#include "comm/collectives.h"
#include "comm/subset.h"
#include "engine/engine.h"
#include "engine/on_device.h"

namespace trireme::engine {

using schedule::Instruction;

namespace {

void gather_slices(comm::Communicator& ranks, const std::byte* mine, std::byte* whole, std::int64_t slice_bytes) {
  const auto size = static_cast<std::size_t>(slice_bytes);
  comm::all_gather(ranks, {mine, size}, {whole, size * static_cast<std::size_t>(ranks.world_size())});
}
void gather_slices(DeviceRanks& ranks, const std::byte* mine, std::byte* whole, std::int64_t slice_bytes) {
  ranks.all_gather(mine, whole, slice_bytes);
}

}  // namespace

// From collectives that will not complete.
void Engine::free_peers() {
  comm_.abort("rank " + std::to_string(comm_.rank()) + " failed in a step");
  if (device_ != nullptr) device_->abort();
}

void Engine::make_subsets() {
  const schedule::Options& options = plan_.options;
  if (options.replicas == 1) return;
  std::vector<int> same_replica, same_slice;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (options.replica_of(rank) == options.replica_of(comm_.rank())) same_replica.push_back(rank);
    if (options.slice_of(rank) == options.slice_of(comm_.rank())) same_slice.push_back(rank);
  }
  shards_ = comm::make_subset(comm_, std::move(same_replica));
  replicas_ = comm::make_subset(comm_, std::move(same_slice));
}

comm::Communicator& Engine::ranks_of(schedule::Scope scope) const {
  if (scope == schedule::Scope::shards && shards_) return *shards_;
  if (scope == schedule::Scope::replicas && replicas_) return *replicas_;
  return comm_;
}

// Where whole sums are kept, this rank's slice of them.
std::byte* Engine::slice_sum(int group) const {
  const bool whole = !plan_.chain.groups[group].shards_gradients;
  const std::int64_t bytes = plan_.groups[group].slice_numel() * size_of(state_.accumulator_dtype());
  return state_.accumulator(group) + (whole ? plan_.options.slice_of(comm_.rank()) * bytes : 0);
}

std::int64_t Engine::own_tokens() const {
  std::int64_t own = 0;
  for (const Batch& batch : batches_) own += count_labels(batch);
  return own;
}

void Engine::run_count() {
  for (const std::int64_t count : comm::gathered(comm_, own_tokens())) report_.valid_tokens += count;
}

void Engine::run_reduce(const Instruction& instruction, const std::byte* slot) {
  failpoint("engine.reduce", comm_.rank());
  if (device_ != nullptr) return reduce(device_->ranks_of(instruction.scope), instruction, slot);
  reduce(ranks_of(instruction.scope), instruction, slot);
}

template <class Ranks>
void Engine::reduce(Ranks& ranks, const Instruction& instruction, const std::byte* slot) {
  using enum schedule::ReduceKind;
  const StorageGroup& group = plan_.groups[instruction.group];
  std::byte* accumulator = state_.accumulator(instruction.group);
  const DType dtype = state_.accumulator_dtype();
  const std::int64_t slice_bytes = group.slice_numel() * size_of(dtype);
  switch (instruction.reduce) {
    case reduce_scatter:
      return ordered_reduce_scatter(ranks, slot, reduce_types_, slice_sum(instruction.group), group.slice_numel(),
                                    instruction.participants, instruction.first);
    case scatter_sums: return ordered_scatter_sums(ranks, accumulator, dtype, group.slice_numel());
    case all_gather: return gather_slices(ranks, accumulator + ranks.rank() * slice_bytes, accumulator, slice_bytes);
    case all_reduce: return ordered_all_reduce(ranks, accumulator, dtype, group.numel);
    case sum_replicas:
      return ordered_all_reduce(ranks, state_.updated_accumulator(instruction.group), dtype, group.slice_numel());
    case none: break;
  }
  TRIREME_CHECK(false, "REDUCE without a kind");
}

// This rank's slice and those of the others.
void Engine::gather_weights(int group, const std::byte* slice, std::byte* whole) {
  const std::int64_t bytes = plan_.groups[group].slice_numel() * size_of(chain_.compute_dtype);
  if (device_ != nullptr) return gather_slices(device_->ranks_of(schedule::Scope::shards), slice, whole, bytes);
  gather_slices(ranks_of(schedule::Scope::shards), slice, whole, bytes);
}

}  // namespace trireme::engine
