// A rank's persistent numbers: weights, optimizer state and gradient sums by storage group, and the map between them
// and logical tensors.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chain/chain.h"
#include "engine/memory.h"
#include "layout/storage_group.h"
#include "optim/optimizer.h"
#include "schedule/schedule.h"

namespace trireme::engine {

// Where a parameter lives.
struct ParameterPlace {
  int group = -1;
  std::int64_t offset = 0;  // elements
};

// Elements [begin, end) of a group.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Weights, and the optimizer's arrays.
enum class StateKind : std::uint8_t { master, first, second };

// Of the numbers that outlive a step, besides the weights that units read.
struct StateTypes {
  DType master = DType::f32;  // f32, or bf16 where units compute in it: then they read the masters themselves
  DType moment = DType::f32;  // of the optimizer's arrays: f32 or bf16
  DType sum = DType::f32;     // of gradients: f32 or bf16
};

class ModelState {
 public:
  // Allocates what `program` plans as persistent, on both tiers; the optimizer's arrays are as before its first step.
  // slice: which of the groups' num_slices is this rank's. chain, groups and spec must outlive this.
  ModelState(const Chain& chain, const std::vector<StorageGroup>& groups, const schedule::ChainSpec& spec,
             const schedule::Program& program, const optim::OptimizerOptions& optimizer, int slice,
             const StateTypes& types = {}, MemoryKind device_memory = MemoryKind::host,
             MemoryKind host_memory = MemoryKind::host);

  // What there is: the masters, and as many arrays as the optimizer has.
  const std::vector<StateKind>& kinds() const { return kinds_; }
  std::string prefix_of(StateKind kind) const;  // of names in checkpoints: "", "exp_avg/", "momentum_buffer/", ...

  // What this rank updates: the whole group, or its slice where the optimizer is sharded.
  Range updated(int group) const;
  // What it holds of a kind. Of the optimizer: what it updates (none of a frozen group). Masters that units do not
  // read: the same. Those that they read: all of them, or a slice where parameters are sharded.
  Range held(StateKind kind, int group) const;
  // Units read the masters themselves: where these have the type that they compute in, but for masters on the host
  // beside weights on the device; and always in a frozen group, which nothing is added to, so that what units read is
  // all there is, rounded once when it was loaded or drawn.
  bool weights_are_master(int group) const;
  DType dtype_of(StateKind kind, int group) const;
  // What is held of a kind: in the state itself, or on a device and where it is not fp32 in storage.
  std::span<const float> read(StateKind kind, int group, std::vector<float>& storage) const;
  // Where the state lies, the element updated().begin; null for a kind that is not there.
  std::byte* updated_data(StateKind kind, int group) const;

  // This rank's slice of a group, whether or not others hold it too: what a snapshot keeps of each kind.
  Range slice_of(int group) const;
  // SNAPSHOT: copies that of a trainable group to where `program` has planned it.
  void take_snapshot(int group) const;
  // What was copied last, slice_of() of dtype_of(); null where no snapshots are planned.
  const std::byte* snapshot(StateKind kind, int group) const;

  // Gradient sums, of accumulator_dtype(): all of them, or this rank's slice where gradients are sharded.
  std::byte* accumulator(int group) const { return places_[group].accumulator; }
  std::byte* updated_accumulator(int group) const;
  DType accumulator_dtype() const { return types_.sum; }
  // updated_accumulator(), or where that is on a device a copy of it in storage.
  const std::byte* read_sums(int group, std::vector<std::byte>& storage) const;
  // Of updated_accumulator(), where the state is on the host, what was copied there for STEP.
  std::byte* sum_copy(int group) const { return places_[group].sum_copy; }
  // What units read, in the compute dtype (in fp32 mostly the masters themselves): all of it, or where parameters are
  // sharded this rank's slice; where they are on the host, what is fetched from there.
  std::byte* weights(int group) const { return places_[group].weights; }
  std::byte* updated_weights(int group) const;

  const ParameterPlace& place(int parameter) const { return parameter_places_[parameter]; }
  // The parameter in a whole group of weights that lies at `weights`.
  Tensor view(int parameter, std::byte* weights) const;

  // Element i of logical tensor n is normal(seed, "init/n", i) * init_std, or 0 or 1: the same under every layout.
  // Engine::refresh_weights() must follow.
  void initialize(std::uint64_t seed);
  // The units' copies of what this rank updates of a group, from the masters; nothing where there are none.
  void cast_weights(int group);
  // The same to another place, of a trainable group.
  void write_weights(int group, std::byte* target) const;

  // A box of a logical tensor, in the tensor's own rows and columns, that this rank holds; data: its first element,
  // which may be written (of a device, and of what is not fp32, a copy, whose values go back when the group is done).
  struct HeldPiece {
    StateKind kind;
    const ParameterSpec& parameter;
    const LogicalTensor& tensor;
    Box box;
    float* data;
    std::int64_t row_stride;
  };
  void for_each_piece(const std::function<void(const HeldPiece&)>& visit) const;
  void for_each_piece(StateKind kind, const std::function<void(const HeldPiece&)>& visit) const;

  const Memory& memory(schedule::Tier tier) const { return tier == schedule::Tier::host ? host_ : device_; }

 private:
  struct Place {
    std::byte *master, *first, *second, *weights, *accumulator, *sum_copy, *snapshot;
  };
  // Element held().begin.
  std::byte* data(StateKind kind, int group) const;
  void fill_optimizer_state(float value) const;
  void initialize_on_device(std::uint64_t seed) const;
  void write(StateKind kind, int group, std::span<const float> values) const;
  void copy_between(void* to, const void* from, std::size_t bytes) const;
  bool is_copied(StateKind kind, int group) const;
  bool is_on_device() const { return device_.kind() == MemoryKind::device; }
  const Chain& chain_;
  const std::vector<StorageGroup>& groups_;
  const schedule::ChainSpec& spec_;
  int slice_;
  StateTypes types_;
  std::span<const std::string_view> names_;  // of the optimizer's arrays
  std::vector<StateKind> kinds_;
  Memory device_, host_;
  std::vector<Place> places_;
  std::vector<ParameterPlace> parameter_places_;
};

}  // namespace trireme::engine
