// One rank's engine: plans a step, proves it, owns all memory, and runs it.
//
//   Engine engine(chain, options, comm);      // plan() tells sizes before any memory is taken
//   engine.state().initialize(seed);
//   StepReport report = engine.step(batches, step_options);
//
// When step() returns, every lane has drained and the communicator is free for other use. Where plan().overlaps_steps()
// the weights are then still those of the step before: the update runs into the next step(), or into drain().
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "comm/collectives.h"
#include "comm/communicator.h"
#include "engine/executor.h"
#include "engine/model_state.h"
#include "engine/non_finite.h"
#include "engine/snapshot.h"
#include "kernels/kernels.h"
#include "layout/mesh.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "schedule/build.h"

namespace trireme::engine {

struct EngineOptions {
  int device = -1;         // the CUDA device that it runs on; -1: the CPU
  int ranks_in_reach = 1;  // of devices: peer_copies.h; ranks that are not go through NCCL
  int host_threads = 1;    // beside a device: of the updates of what is in host memory
  MemoryKind device_memory() const { return device < 0 ? MemoryKind::host : MemoryKind::device; }
  MemoryKind host_memory() const { return device < 0 ? MemoryKind::host : MemoryKind::pinned; }
  BatchShape micro_batch;  // B, T
  MicroBatchSplit split;   // M micro-batches over the data ranks
  bool reduce_each_micro_batch = false;
  bool adds_in_place = false;  // units add to the sums themselves, where may_add_in_place() and their types agree
  Wrapping wrapping;
  schedule::Sharding sharding;             // of no effect where a replica has one rank
  int replicas = 1;                        // divides the data ranks
  std::int64_t persistence_threshold = 0;  // groups of fewer elements keep whole parameters
  int gather_ahead = 1;
  std::int64_t reuse_distance = 0;  // elements; see schedule::Options
  std::int64_t max_live = 0;        // elements, 0: no bound
  int gradient_slots = 2;
  bool overlap = true;      // of lanes; and of STEP with the next forward, where ranks update slices, or on the host
  int recompute_every = 0;  // every k-th of the units that keep something runs its forward again instead; 0: none
  // In host memory: the optimizer's state with the masters, which is then updated there; with it the weights, where
  // parameters are sharded or one rank has all; the inputs of units that recompute, but the last one's, which is needed
  // at once.
  bool offload_optimizer = false, offload_parameters = false, offload_inputs = false;
  bool snapshots = false;        // StepOptions::snapshot may be asked for: host memory for one
  bool measures = false;         // StepReport::seconds
  bool may_be_silent = false;    // StepOptions::silent may be asked for: beside the plan, memory for one gathered group
  double gradient_clipping = 0;  // 0: off
  optim::OptimizerOptions optimizer;
  optim::LossScaleOptions loss_scale{.fixed = 1};
  // Each micro-batch's gradient is rounded to it before it is added, and so it is sent; f32: as it was computed.
  DType reduce_dtype = DType::f32;
  DType accumulator_dtype = DType::f32;                        // of gradient sums: f32 or bf16
  DType master_dtype = DType::f32, moment_dtype = DType::f32;  // see StateTypes; bf16 is rounded stochastically
  std::uint64_t rounding_seed = 0;
  double gradient_factor = 1;     // of the loss, and nothing takes it back: gradients and their norm are larger by it
  bool skips_non_finite = false;  // gradients that are not finite: no STEP, in place of an error
};

// What a step is before it runs: the groups, and the proven program of one rank.
struct StepPlan {
  std::vector<StorageGroup> groups;
  schedule::ChainSpec chain;
  schedule::Options options;  // of programs.front()
  // closed; or cycle, opening, drain. With snapshots, those of these that have STEPs once more, with a SNAPSHOT of
  // each.
  std::vector<schedule::Program> programs;
  const schedule::Program& program() const { return programs.front(); }  // of most steps
  std::size_t index_of(schedule::Pass pass, bool takes_snapshot = false) const;
  std::int64_t persistent_bytes = 0, host_persistent_bytes = 0;
  std::int64_t arena_bytes = 0;  // of the programs' arena, or of an evaluation where that takes more
  std::int64_t host_arena_bytes = 0;
  std::int64_t device_bytes() const { return persistent_bytes + arena_bytes; }  // of the engine's own memory
  std::int64_t host_bytes() const { return host_persistent_bytes + host_arena_bytes; }
  // "weights", "optimizer state", ..., bytes of this rank on the device and in host memory.
  std::map<std::string, std::int64_t> memory_by_owner, host_memory_by_owner;
  std::int64_t bytes() const;  // of all owners on the device: what lies outside the engine counts too
  bool overlaps_steps() const { return schedule::leaves_steps(programs.front().pass); }
  // Groups are updated before the norm is known: a step that it ends has changed some of them.
  bool steps_early() const;
  bool has_sharded_parameters() const;
  bool updates_slices() const;  // each rank's own
  // The set's devices write each other's memory: they are in reach, and what they write is at the same place on all.
  bool by_copies(schedule::Scope scope) const;
  int ranks_in_reach = 1;
};

// How gradients are added up.
comm::ReduceTypes reduce_types(const Chain& chain, const EngineOptions& options);

// Whether the options let units add to the sums themselves: where a rank has whole sums, alone until their last round,
// and gradients are added as they were computed; not where strategy or options promise the bits of any number of ranks.
// Parameters may then have gradients of the sums' type, not of the computation's (ParameterSpec::float_gradient).
bool may_add_in_place(const EngineOptions& options);

// Builds, lowers and verifies the programs of all classes of ranks. Throws Error TR1310 with the first finding when a
// program does not hold.
StepPlan plan_step(const Chain& chain, const EngineOptions& options, int rank);

struct StepOptions {
  double learning_rate = 0;
  std::int64_t step = 1;        // 1, 2, ...: of those that moved the weights; bias correction's t
  std::int64_t run_step = 0;    // of the run, for messages: more by the skipped ones; 0: step
  bool stop_requested = false;  // by this rank
  bool record_spans = false;
  // Engine::snapshot() gives the state behind this step, as soon as it is updated: where plan().overlaps_steps() in the
  // next step or drain. Needs EngineOptions::snapshots.
  bool snapshot = false;
  // Ranks tell each other nothing, what waits for collectives still waits: for measuring what they cost. Units compute
  // with random weights where theirs were not gathered, since they take other times with numbers of other sizes:
  // devices multiply zeros faster; a rank's own gradient is added to its sums. The report has the mean loss of this
  // rank alone; weights are void afterwards. Needs EngineOptions::may_be_silent.
  bool silent = false;
};

struct StepReport {
  double loss = 0;                         // mean over the valid tokens of the global batch
  std::int64_t valid_tokens = 0;           // of the global batch
  std::vector<double> micro_batch_losses;  // sums, global order
  double gradient_norm = 0;                // before the clip, without the loss scale
  double clip_factor = 1;
  double loss_scale = 1;                // that the backward used
  std::optional<NonFinite> non_finite;  // the step was skipped: it moves neither weights nor optimizer state
  bool stop_requested = false;          // by any rank
  std::size_t program = 0;              // of plan().programs: the one that ran
  std::vector<schedule::Span> spans;    // of its instructions, where they were to be recorded
  // Where EngineOptions::measures: seconds of this rank by kind of instruction. Lanes overlap: gather and reduce run
  // beside the others, as do copy and, of what is in host memory, step. The compute lane's time in instructions
  // (`computing`), and that in which it waits for another lane; what is left of the step, it is outside both.
  struct Seconds {
    double forward = 0, recompute = 0, backward = 0, step = 0, gather = 0, reduce = 0, copy = 0, computing = 0,
           waiting = 0;
  };
  std::optional<Seconds> seconds;
};

class Engine {
 public:
  // chain must outlive the engine. comm may be used by others between steps, not during one.
  Engine(const Chain& chain, const EngineOptions& options, comm::Communicator& comm);
  ~Engine();

  const StepPlan& plan() const { return plan_; }

  // The update of the last step, where it is pending; before evaluation, saving and any look at state(), which refuse
  // to work without. Collective where ranks update slices.
  void drain();
  ModelState& state();

  // batches[k] is this rank's micro-batch of round k (shape.batch == 0 where it has none). Gradients that are not
  // finite leave weights and optimizer state untouched (unless plan().steps_early()): they are Error TR1302, or where
  // EngineOptions::skips_non_finite a report with non_finite, after which the loss scale falls; TR1303 (no progress)
  // where it is at its minimum. TR1304, before anything is done, where a snapshot that is held would be overwritten, by
  // this step or the one that it asks for; drain() too.
  StepReport step(std::span<const Batch> batches, const StepOptions& options);

  // The last that was taken; none before. Between steps.
  std::optional<Snapshot> snapshot();

  // Forward and loss only. Where is_sharded(), a collective: every rank calls it as often as the others, and one that
  // has no batch (nullptr) takes part.
  LossResult evaluate(const Batch* batch);
  bool is_sharded() const { return plan_.has_sharded_parameters(); }

  // That the next step's backward uses.
  const optim::LossScaleState& loss_scale() const { return loss_scale_; }
  void set_loss_scale(const optim::LossScaleState& state) { loss_scale_ = state; }  // of a checkpoint

  // The units' copies of the weights from the masters, after state().initialize() or a load: a collective.
  void refresh_weights();

  // For saving: all elements of one kind of state of a group, on rank 0; elsewhere nothing. Lies in the state itself
  // or in storage: where ranks hold slices, which makes it a collective, or where it is not fp32.
  std::span<const float> gather_state(StateKind kind, int group, std::vector<float>& storage);
  // The same of a snapshot, whose slices make it a collective on every engine of several ranks. Between steps, also
  // while one is pending.
  std::span<const float> gather_state(const Snapshot& snapshot, StateKind kind, int group, std::vector<float>& storage);

  // What this rank has mapped for the model and the step; on each tier as plan() says.
  std::int64_t allocated_bytes(schedule::Tier tier) const;

 private:
  struct Bound;     // an instruction's views, resolved once
  struct OnDevice;  // what it has beside plan and state where it runs on a device
  void move_to_device();
  void run_on_device(std::size_t program, std::span<schedule::Span> record);
  void upload_batches();
  void finish_step_on_device();
  void report_of_device();
  void check_peers();
  void leave_device() noexcept;
  const Batch& batch_on_device(int round) const;
  void wait_for_device() const;
  LossResult evaluate_on_device(const Batch* batch);
  void gather_for_others();
  void evaluate(const Batch& batch, double* sum);
  void check(std::span<const Batch> batches);
  void free_peers();
  void run(int program, int instruction);
  void run_program(std::size_t program, std::span<schedule::Span> record);
  std::size_t next_program() const;
  void refuse_overwriting() const;
  std::span<const float> gather_to_first(std::span<const float> mine, int group, std::vector<float>& storage);
  StepReport::Seconds sum_of_seconds() const;
  void skip_collective(const schedule::Instruction& instruction, const std::byte* slot);
  void report_own();
  void draw_stand_in();
  void add_own_slice(const schedule::Instruction& instruction, const std::byte* slot);
  std::byte* slice_sum(int group) const;
  std::int64_t own_tokens() const;
  void run_compute(const schedule::Instruction& instruction, const Bound& bound);
  void run_count();
  void run_reduce(const schedule::Instruction& instruction, const std::byte* slot);
  template <class Ranks>
  void reduce(Ranks& ranks, const schedule::Instruction& instruction, const std::byte* slot);
  void run_report();
  void run_norm();
  void find_non_finite();
  void run_step(const schedule::Instruction& instruction, const Bound& bound);
  struct Due;
  void update_on_host(int group, const Bound& bound, const Due& due, const kernels::Update& update) const;
  void update_group(int group, const Bound& bound, const Due& due, const kernels::Update& update) const;
  const kernels::Update& update_for_host() const;
  void call_on_host(std::function<void()> work);
  void run_copy(const Bound& bound);
  DType gradient_dtype(int group) const;
  void run_accumulate(const schedule::Instruction& instruction, const Bound& bound);
  void run_gather(const schedule::Instruction& instruction, const Bound& bound);
  Bound bind(const schedule::Program& program, const schedule::Instruction& instruction) const;
  void bind_copies(const schedule::Program& program, const schedule::Instruction& instruction, Bound& bound) const;
  std::byte* address_of(const schedule::Buffer& buffer) const;
  void gather_weights(int group, const std::byte* slice, std::byte* whole);
  const std::byte* fetch_to(std::byte* whole, int group) const;
  bool is_read_after(int unit, int parameter) const;
  void make_subsets();
  void set_norm(double squares);
  void on_non_finite(std::int64_t logical_tensor, int rank);
  void move_loss_scale();
  std::string place_of_step() const;
  // Whole groups of an evaluation, in the arena; those of the unit before stay where they hold all that is needed.
  struct Gathered {
    std::byte* memory = nullptr;
    std::vector<std::byte*> groups;  // by group; null: is not there
  };
  Gathered nothing_gathered() const;
  std::vector<Tensor> gather_unit(std::size_t unit, Gathered& gathered);
  comm::Communicator& ranks_of(schedule::Scope scope) const;

  const Chain& chain_;
  EngineOptions options_;
  comm::Communicator& comm_;
  std::unique_ptr<comm::Communicator> shards_, replicas_;  // subsets of comm_; null where they are all of it
  StepPlan plan_;
  ModelState state_;
  Memory arena_, host_arena_;
  Memory stand_in_;                        // of a silent step, for any group that would be gathered
  const int copy_threads_;                 // of STEP on the copy lane
  std::vector<std::vector<Bound>> bound_;  // per program
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>
      gaps_;  // per group: element ranges that no parameter covers

  comm::ReduceTypes reduce_types_;
  optim::LossScaleState loss_scale_;
  int skips_in_a_row_ = 0;

  // Of the step under way; lanes hand them on in the order that the program's scalar buffers prove.
  std::span<const Batch> batches_;
  StepOptions step_options_;
  // What NORM, LOSS and STEP hand on lies where they run.
  struct Numbers {
    kernels::ExactSum squares;
    kernels::Update update;
  };
  std::vector<double> own_losses_;
  double* losses_ = nullptr;  // by round: own_losses_, or the device's
  Numbers own_;
  Numbers* numbers_ = &own_;          // or the device's
  std::int64_t own_non_finite_ = -1;  // first_non_finite()
  StepReport report_;
  // What STEP works with: as the buffer gradient_norm it is written by report and may outlive the pass.
  struct Due {
    double learning_rate = 0;
    std::int64_t step = 0;
  };
  Due due_;
  bool is_pending_ = false;
  // Steps: of which there is a snapshot, and of which the next STEPs are to make one.
  std::optional<std::int64_t> snapshot_step_, due_snapshot_;
  std::atomic<int> snapshot_readers_ = 0;
  // Last: its threads end before anything they use. One of the two.
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<OnDevice> device_;
};

}  // namespace trireme::engine
