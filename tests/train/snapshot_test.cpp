// Snapshots: the state behind a step, bit for bit, while training goes on.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "kernels/device.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/engine_run.h"
#include "train/state_reader.h"

namespace trireme::testing {
namespace {

using engine::Engine;
using engine::Snapshot;

constexpr std::int64_t kStep = 3;  // whose state is to be kept, of six
constexpr int kSteps = 6;

struct Layout {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
  bool same_as_serial = true;  // sums over replicas are in another order
};

const std::vector<Layout>& layouts() {
  const auto strategy = [](const char* name) { return std::string("distributed.strategy=") + name; };
  static const std::vector<Layout> list = {
      {"serial", 1, {}},
      {"ddp", 3, {strategy("ddp")}},
      {"zero1", 2, {strategy("zero1")}},
      {"zero2", 3, {strategy("zero2")}},
      {"zero3", 2, {strategy("zero3")}},
      {"zero3 with small groups whole", 2, {strategy("zero3"), "distributed.persistence_threshold=9000"}},
      {"shard_grad_op", 4, {strategy("shard_grad_op")}},
      {"hybrid 2x2", 4, {strategy("hybrid_shard"), "distributed.dp_shard=2"}, false},
      {"one rank, state on the host", 1, {"distributed.offload_optimizer=cpu"}},
      {"zero1, state on the host", 2, {strategy("zero1"), "distributed.offload_optimizer=cpu"}},
      {"zero3, all on the host", 2, {strategy("zero3"), "distributed.offload_param=cpu"}},
      {"zero2 without clipping, state on the host",
       2,
       {strategy("zero2"), "distributed.offload_optimizer=cpu", "training.gradient_clipping=0"}},
      {"zero3, frozen embedding", 2, {strategy("zero3"), "training.freeze=[model.embed_tokens.*]"}},
      {"ddp, frozen embedding, no overlap",
       2,
       {strategy("ddp"), "training.freeze=[model.embed_tokens.*]", "distributed.overlap_comm=false"}},
  };
  return list;
}

enum class Types : std::uint8_t { fp32, bf16, narrow };  // narrow: masters and moments too
constexpr std::array kTypes{Types::fp32, Types::bf16, Types::narrow};

TinyRun run_of(const Layout& layout, Types types) {
  TinyRun run{.ranks = layout.ranks,
              .micro_batches = 6,
              .steps = kSteps,
              .tied = false,
              .bf16 = types != Types::fp32,
              .overrides = layout.overrides};
  return types == Types::narrow ? with(run, {"training.master_dtype=bf16", "training.moment_dtype=bf16"}) : run;
}

// The same numbers on one rank.
TinyRun serial_of(const Layout& layout, Types types) {
  TinyRun run = run_of(layout, types);
  if (!layout.same_as_serial) return run;
  run.ranks = 1;
  std::erase_if(run.overrides, [](const std::string& text) { return text.starts_with("distributed."); });
  return run;
}

void plan_snapshots(engine::EngineOptions& options) {
  options.snapshots = true;
}

// As the Trainer does it. The folder of the checkpoint on rank 0.
std::filesystem::path save(const std::filesystem::path& checkpoints, train::StateReader& reader,
                           const comm::Communicator& comm) {
  std::filesystem::path folder;
  if (comm.rank() == 0) {
    checkpoint::Manifest manifest;
    manifest.run_id = "r";
    manifest.attempt = checkpoint::begin_attempt(checkpoints, manifest.run_id, 0);
    manifest.step = kStep;
    manifest.kernel_level = "any";
    manifest.num_micro_batches = manifest.micro_batch_size = 1;
    folder = checkpoint::save(checkpoints, manifest, reader.tensors());
  }
  reader.read_the_rest();
  return folder;
}

// Of all tensors, with names and places.
std::string data_of(const std::filesystem::path& checkpoint) {
  return read_file(checkpoint / "state-a1-rank0.safetensors");
}

std::filesystem::path checkpoint_in(const TemporaryFolder& folder, const std::string& name) {
  std::vector<std::string> rejected;
  const auto found = checkpoint::list(folder.path() / name, &rejected);
  for (const std::string& reason : rejected) ADD_FAILURE() << reason;
  return found.at(0).folder;
}

// Run to kStep and save there.
EngineResult save_stopped(TinyRun run, const std::filesystem::path& checkpoints) {
  run.steps = kStep;
  return run_engines(
      {.run = run, .after_step = [&](Engine& engine, const Chain& chain, comm::Communicator& comm, std::int64_t step) {
         if (step < kStep) return;
         engine.drain();
         train::StateReader reader(engine, chain);
         save(checkpoints, reader, comm);
       }});
}

// Asks at kStep, and writes the checkpoint when two more steps have run. Nothing is drained.
EngineResult save_from_snapshot(const TinyRun& run, const std::filesystem::path& checkpoints) {
  return run_engines(
      {.run = run,
       .change = plan_snapshots,
       .snapshots = {kStep},
       .after_step = [&](Engine& engine, const Chain& chain, comm::Communicator& comm, std::int64_t step) {
         if (step < kStep + 2) return;
         const std::optional<Snapshot> snapshot = engine.snapshot();
         ASSERT_TRUE(snapshot);
         EXPECT_EQ(snapshot->step(), kStep);
         if (step > kStep + 2) return;
         train::StateReader reader(engine, *snapshot, chain);
         save(checkpoints, reader, comm);
       }});
}

void load(const checkpoint::Reader& reader, Engine& engine) {
  engine.state().for_each_piece([&](const engine::ModelState::HeldPiece& piece) {
    reader.read(engine.state().prefix_of(piece.kind) + piece.tensor.name, piece.tensor.shape, piece.box.row_begin,
                piece.box.row_end, piece.box.column_begin, piece.box.column_end, piece.data, piece.row_stride);
  });
}

// Two steps later, whatever is pending, the checkpoint has every byte of one that a run made which stopped there; and
// taking it changes nothing.
void expect_the_checkpoint_of_a_run_that_stopped_there(const Layout& layout, Types types) {
  SCOPED_TRACE(layout.name);
  const TemporaryFolder folder;
  const TinyRun run = run_of(layout, types);
  const EngineResult plain = run_engines({.run = run});
  save_stopped(serial_of(layout, types), folder.path() / "stopped");
  const EngineResult taken = save_from_snapshot(run, folder.path() / "snapshot");
  EXPECT_EQ(taken.weights_digest, plain.weights_digest);
  EXPECT_TRUE(taken.all_ranks_equal);
  const auto checkpoint = checkpoint_in(folder, "snapshot");
  EXPECT_TRUE(data_of(checkpoint) == data_of(checkpoint_in(folder, "stopped")));

  // And the run that goes on from it ends as the one that was never interrupted.
  const checkpoint::Reader reader(checkpoint);
  const EngineResult resumed =
      run_engines({.run = run, .done = kStep, .begin = [&](Engine& engine, const Chain&) { load(reader, engine); }});
  EXPECT_EQ(resumed.weights_digest, plain.weights_digest);
}

class Snapshots : public ::testing::TestWithParam<Types> {};

TEST_P(Snapshots, GiveTheCheckpointOfARunThatStoppedThere) {
  for (const Layout& layout : layouts()) expect_the_checkpoint_of_a_run_that_stopped_there(layout, GetParam());
}

// Those of a device are copies to host memory beside what it computes next.
class DeviceSnapshots : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels::num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << kernels::why_no_device();
  }
};

const std::vector<Layout>& layouts_on_device() {
  static const std::string device = "training.device=cuda", offload = "distributed.offload_optimizer=cpu";
  static const std::vector<Layout> list = {
      {"state on the device", 1, {device}},
      {"state on the host", 1, {device, offload}, false},
      {"state on the host, without clipping", 1, {device, offload, "training.gradient_clipping=0"}, false}};
  return list;
}

TEST_F(DeviceSnapshots, GiveTheCheckpointOfARunThatStoppedThere) {
  for (const Layout& layout : layouts_on_device()) {
    for (const Types types : kTypes) expect_the_checkpoint_of_a_run_that_stopped_there(layout, types);
  }
}

// Kernels that sleep and copies that come late, on any rank and lane.
TEST_P(Snapshots, RandomDelaysChangeNoBitOfThem) {
  for (const Layout& layout : layouts()) {
    if (layout.ranks == 4) continue;
    SCOPED_TRACE(layout.name);
    const TemporaryFolder folder;
    save_stopped(serial_of(layout, GetParam()), folder.path() / "stopped");
    set_failpoints("engine.instruction=delay(400)@every");
    save_from_snapshot(run_of(layout, GetParam()), folder.path() / "snapshot");
    set_failpoints("");
    EXPECT_TRUE(data_of(checkpoint_in(folder, "snapshot")) == data_of(checkpoint_in(folder, "stopped")));
  }
}

std::string name_of(Types types) {
  return types == Types::fp32 ? "fp32" : types == Types::bf16 ? "bf16" : "narrow";
}

INSTANTIATE_TEST_SUITE_P(Types, Snapshots, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return name_of(info.param); });

// What the readers of each rank saw, by step.
using Digests = std::map<std::int64_t, std::map<int, std::string>>;

std::string digest_of(const Snapshot& snapshot, int num_groups) {
  Digest digest;
  std::vector<float> storage;
  for (const engine::StateKind kind : snapshot.layout().kinds()) {
    for (int group = 0; group < num_groups; ++group) {
      digest.add(std::as_bytes(snapshot.read(kind, group, storage)));
    }
  }
  return digest.hex();
}

// Read at once, and again by a thread of its own while the next step computes, which is no longer than the engine.
TEST(Snapshots, StayAsTheyAreWhileTheNextStepRuns) {
  for (const char* strategy : {"ddp", "zero1", "zero3"}) {
    SCOPED_TRACE(strategy);
    const TinyRun run{
        .ranks = 2, .micro_batches = 6, .steps = 8, .overrides = {std::string("distributed.strategy=") + strategy}};
    std::mutex mutex;
    Digests first, again;
    std::vector<std::jthread> readers(2);
    run_engines({.run = run,
                 .change = plan_snapshots,
                 .snapshots = {2, 5},
                 .after_step = [&](Engine& engine, const Chain&, comm::Communicator& comm, std::int64_t step) {
                   std::jthread& reader = readers[static_cast<std::size_t>(comm.rank())];
                   if (reader.joinable()) reader.join();
                   std::optional<Snapshot> snapshot = engine.snapshot();
                   if (!snapshot || step == 4 || step == 5 || step == run.steps) return;
                   const int num_groups = static_cast<int>(engine.plan().groups.size()), rank = comm.rank();
                   const std::string seen = digest_of(*snapshot, num_groups);
                   const std::lock_guard lock(mutex);
                   first[snapshot->step()].emplace(rank, seen);
                   reader = std::jthread([&, rank, num_groups, seen, held = std::move(*snapshot)] {
                     for (int i = 0; i < 20; ++i) {
                       const std::string later = digest_of(held, num_groups);
                       const std::lock_guard inner(mutex);
                       again[held.step()].emplace(rank, later);
                       EXPECT_EQ(later, seen) << "it changed while it was read";
                     }
                   });
                 }});
    EXPECT_EQ(first.size(), 2u);
    EXPECT_EQ(first, again);
    EXPECT_NE(first[2], first[5]);
  }
}

TEST_F(DeviceSnapshots, AreWholeAsSoonAsTheyAreGiven) {
  for (const Layout& layout : layouts_on_device()) {
    SCOPED_TRACE(layout.name);
    std::map<std::int64_t, std::set<std::string>> seen;
    run_engines({.run = run_of(layout, Types::bf16),
                 .change = plan_snapshots,
                 .snapshots = {1, 4},
                 .after_step = [&](Engine& engine, const Chain&, comm::Communicator&, std::int64_t) {
                   const std::optional<Snapshot> snapshot = engine.snapshot();
                   if (!snapshot) return;
                   const int num_groups = static_cast<int>(engine.plan().groups.size());
                   seen[snapshot->step()].insert(digest_of(*snapshot, num_groups));
                 }});
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[1].size(), 1u);
    EXPECT_EQ(seen[4].size(), 1u);
    EXPECT_NE(seen[1], seen[4]);
  }
}

// Refused before anything is done: the run goes on once it is released, to the same end.
TEST(Snapshots, AreNotOverwrittenWhileTheyAreRead) {
  for (const char* strategy : {"ddp", "zero2"}) {  // in the step that asks, and in the one after
    SCOPED_TRACE(strategy);
    TinyRun run{.ranks = 2, .steps = 5, .overrides = {std::string("distributed.strategy=") + strategy}};
    const EngineResult plain = run_engines({.run = run});
    std::vector<std::optional<Snapshot>> held(2);
    const EngineResult refused =
        run_engines({.run = run,
                     .change = plan_snapshots,
                     .snapshots = {1, 4},
                     .after_step = [&](Engine& engine, const Chain&, comm::Communicator& comm, std::int64_t step) {
                       std::optional<Snapshot>& mine = held[static_cast<std::size_t>(comm.rank())];
                       if (step == 2) mine = engine.snapshot();
                       if (step != 3) return;
                       const std::vector<Batch> none(2);
                       const std::string what =
                           expect_error(1304, [&] { engine.step(none, {.run_step = 4, .snapshot = true}); });
                       EXPECT_NE(what.find("step 4"), std::string::npos) << what;
                       EXPECT_NE(what.find("that of step 1 is being read"), std::string::npos) << what;
                       mine.reset();
                     }});
    EXPECT_EQ(refused.weights_digest, plain.weights_digest);
  }
}

// Also by one that was asked for before the reader came.
TEST(Snapshots, OfAPendingStepWaitForTheirReaderToo) {
  TinyRun run{.ranks = 2, .steps = 3, .overrides = {"distributed.strategy=zero2"}};
  run_engines({.run = run,
               .change = plan_snapshots,
               .snapshots = {1, 2, 3},
               .after_step = [&](Engine& engine, const Chain&, comm::Communicator&, std::int64_t step) {
                 std::optional<Snapshot> snapshot = engine.snapshot();
                 EXPECT_EQ(snapshot.has_value(), step > 1) << "that of a step comes with its update";
                 if (step < 3) return;
                 EXPECT_EQ(snapshot->step(), 2);
                 expect_error(1304, [&] { engine.drain(); });
                 snapshot.reset();
                 engine.drain();
                 EXPECT_EQ(engine.snapshot()->step(), 3);
               }});
}

TEST(Snapshots, AreRefusedWhereNoneIsPlanned) {
  const TinyRun run{.steps = 1};
  expect_error(1000, [&] { run_engines({.run = run, .snapshots = {1}}); });
}

// Twelve bytes for each parameter of this rank's slice, six where all are bf16, in host memory and there under a name
// of their own.
TEST(Snapshots, TakeThePlannedHostMemory) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    for (const Types types : kTypes) {
      const TinyRun run = run_of(layout, types);
      std::map<bool, std::int64_t> device, host;
      for (const bool plans : {false, true}) {
        run_engines({.run =
                         [&] {
                           TinyRun one = run;
                           one.steps = 1;
                           return one;
                         }(),
                     .change = [&](engine::EngineOptions& options) { options.snapshots = plans; },
                     .after_step =
                         [&](Engine& engine, const Chain&, comm::Communicator& comm, std::int64_t) {
                           const engine::StepPlan& plan = engine.plan();
                           EXPECT_EQ(engine.allocated_bytes(schedule::Tier::host), plan.host_bytes());
                           EXPECT_EQ(engine.allocated_bytes(schedule::Tier::device), plan.device_bytes());
                           if (comm.rank() > 0) return;
                           device[plans] = plan.persistent_bytes, host[plans] = plan.host_bytes();
                           std::int64_t expected = 0;
                           for (const StorageGroup& group : plan.groups) {
                             if (group.trainable)
                               expected += group.numel / plan.options.shard_ranks() * (types == Types::narrow ? 6 : 12);
                           }
                           const auto& owners = plan.host_memory_by_owner;
                           EXPECT_EQ(owners.contains("snapshots"), plans);
                           if (!plans) return;
                           EXPECT_EQ(owners.at("snapshots"), expected);
                           EXPECT_EQ(host[true] - host[false], expected);
                         }});
      }
      EXPECT_EQ(device[true], device[false]);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
