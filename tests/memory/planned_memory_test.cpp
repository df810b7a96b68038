// Planned memory is what a run takes: every byte asked for during its steps, by rank and owner.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/cpu.h"
#include "chain/forward.h"
#include "memory/count/count.h"
#include "models/model.h"
#include "support/temporary_folder.h"
#include "train/dry_run.h"
#include "train/tiny_run.h"

namespace trireme::testing {
namespace {

struct Case {
  const char* name;
  int ranks;
  bool bf16, gpt2;
  std::vector<std::string> overrides;
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name;
}

config::Plan plan_of(const Case& one, const std::filesystem::path& output, int steps) {
  TinyRun run{.ranks = one.ranks,
              .micro_batches = std::max(2, one.ranks),
              .micro_batch_size = 4,
              .steps = steps,
              .reduce_each_micro_batch = false};
  run.bf16 = one.bf16;
  run.gpt2 = one.gpt2;
  run.output_dir = output;
  run.overrides = {"training.compute_threads=1",
                   "model.hidden_size=256",
                   "model.num_layers=4",
                   "model.num_heads=4",
                   "model.vocab_size=4096",
                   "data.sequence_length=128",
                   "model.max_position_embeddings=128",
                   "model.intermediate_size=704"};
  if (!one.gpt2) run.overrides.emplace_back("model.num_key_value_heads=2");
  run.overrides.insert(run.overrides.end(), one.overrides.begin(), one.overrides.end());
  return tiny_plan(run);
}

// Runs the plan, ranks as threads, and gives what each took at most in the steps from the second on.
std::vector<Counted> run_counted(const config::Plan& plan, int ranks) {
  const Counted before = counted_now(-1);
  std::vector<Counted> own_before;
  for (int rank = 0; rank < ranks; ++rank) own_before.push_back(counted_now(rank));
  std::vector<Counted> most(ranks);
  std::vector<std::exception_ptr> failed(ranks);
  Counted shared;
  const auto comms = comm::make_local(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      count_for_rank(rank);
      try {
        train::TrainerOptions options{.comm = comms[rank].get(), .console = false};
        options.on_step = [&](const monitor::StepRecord& record) {
          if (record.step == 1 && rank == 0) forget_most();
          if (record.step == 3) most[rank] = counted_most(rank);
          if (record.step == 3 && rank == 0) shared = counted_most(-1);
        };
        train::Trainer(plan, options).run();
      } catch (...) {
        failed[rank] = std::current_exception();
        comms[rank]->abort("failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failed) {
    if (failure) std::rethrow_exception(failure);
  }
  // Threads that a rank starts are nobody's; an equal share for each rank.
  for (int rank = 0; rank < ranks; ++rank) {
    most[rank].library += (shared.library - before.library) / ranks - own_before[rank].library;
    most[rank].other += (shared.other - before.other) / ranks - own_before[rank].other;
  }
  return most;
}

class PlannedMemory : public ::testing::TestWithParam<Case> {};

TEST_P(PlannedMemory, IsWhatARunTakes) {
  if (!counts_memory()) GTEST_SKIP() << "a sanitizer's allocator is in the way";
  const Case& one = GetParam();
  const TemporaryFolder folder;
  // LibTorch's tables and what else is made once in a process.
  run_counted(plan_of(one, folder.path() / "warm", 1), one.ranks);
  const config::Plan plan = plan_of(one, folder.path() / "run", 3);
  const std::vector<Counted> taken = run_counted(plan, one.ranks);
  // Of other processors MKL is known to take no more.
  const bool knows_library = x86_64_level() >= 4 && processor_name().find("Intel") != std::string::npos;
  for (int rank = 0; rank < one.ranks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const engine::StepPlan step = train::describe_run(plan, one.ranks, rank).step;
    std::int64_t engines = 0;
    std::string owners;
    const std::set<std::string> besides{"library scratch", "collectives", "loader", "tables"};
    for (const auto& [owner, bytes] : step.memory_by_owner) {
      if (!besides.contains(owner)) engines += bytes;
      owners += owner + " " + std::to_string(bytes) + "\n";
    }
    SCOPED_TRACE(owners);
    const Counted& own = taken[rank];
    const auto planned = static_cast<double>(step.bytes()), measured = static_cast<double>(own.sum());
    EXPECT_EQ(own.mapped, engines);
    const std::int64_t library = step.memory_by_owner.at("library scratch");
    if (knows_library) {
      EXPECT_NEAR(static_cast<double>(own.library), static_cast<double>(library), 0.02 * planned);
      EXPECT_NEAR(measured / planned, 1, 0.03);
    }
    EXPECT_GT(own.library, 0);
    const auto rest = static_cast<double>(step.bytes() - engines - library);
    EXPECT_LE(static_cast<double>(own.library), static_cast<double>(library) + 0.02 * planned);
    EXPECT_NEAR(static_cast<double>(own.other), rest, 0.02 * planned);
    std::printf("%s, rank %d: planned %.2f MB, measured %.2f MB = %.2f mapped + %.2f library + %.2f other\n", one.name,
                rank, planned / 1e6, measured / 1e6, own.mapped / 1e6, own.library / 1e6, own.other / 1e6);
  }
}

const Case kCases[] = {
    {"ddp", 1, false, false, {}},
    {"ddp_bf16", 1, true, false, {}},
    {"ddp_2_ranks", 2, false, false, {}},
    {"gpt2", 1, false, true, {}},
    {"full_recompute", 1, false, false, {"training.gradient_checkpointing=full"}},
    {"selective_recompute_bf16", 1, true, false, {"training.gradient_checkpointing=selective"}},
    {"every_second_recomputed",
     1,
     false,
     false,
     {"training.gradient_checkpointing=full", "training.recompute_every=2"}},
    {"zero1_bf16_2_ranks", 2, true, false, {"distributed.strategy=zero1"}},
    {"zero2_2_ranks", 2, false, false, {"distributed.strategy=zero2"}},
    {"zero3_2_ranks", 2, false, false, {"distributed.strategy=zero3"}},
    {"zero3_bf16_recompute_3_ranks",
     3,
     true,
     false,
     {"distributed.strategy=zero3", "training.gradient_checkpointing=full", "data.prefetch_factor=4"}},
    {"hybrid_4_ranks", 4, false, false, {"distributed.strategy=hybrid_shard", "distributed.dp_shard=2"}},
};

INSTANTIATE_TEST_SUITE_P(Plans, PlannedMemory, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// What a forward keeps has a place of its own, unless it keeps nothing; what only a backward uses is not the forward's.
TEST(PlannedMemory, NothingIsCountedTwice) {
  LlamaConfig config;
  config.vocabulary = 512, config.hidden_size = 256, config.intermediate_size = 704, config.num_layers = 2;
  config.num_heads = 4, config.num_key_value_heads = 4, config.max_positions = 128;
  const Chain chain = make_chain(config, DType::f32);
  const BatchShape shape{4, 128};
  const UnitCost block = chain.units[1]->describe(Phase::forward, shape);
  EXPECT_GT(block.saved_bytes, 0);
  EXPECT_LT(block.workspace_bytes, block.saved_bytes);
  EXPECT_GE(forward_bytes(chain, shape), block.workspace_bytes + block.saved_bytes) << "an evaluation keeps nothing";
  const auto workspace_of = [&](int recompute_every, schedule::Op op) {
    const engine::EngineOptions options{.micro_batch = shape, .split = {1, 1}, .recompute_every = recompute_every};
    const engine::StepPlan plan = engine::plan_step(chain, options, 0);
    for (const schedule::Instruction& instruction : plan.program().instructions) {
      if (instruction.op != op || instruction.unit != 1) continue;
      const int workspace = find(plan.program(), instruction.writes, schedule::BufferKind::workspace);
      return plan.program().buffers[workspace].bytes;
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(workspace_of(0, schedule::Op::forward), block.workspace_bytes);
  EXPECT_EQ(workspace_of(1, schedule::Op::forward), block.workspace_bytes + block.saved_bytes);
  EXPECT_EQ(workspace_of(1, schedule::Op::recompute), block.workspace_bytes);
  EXPECT_LT(2 * kernels::attention_workspace({.T = 512, .D = 64}, DType::f32, false, 1),
            kernels::attention_workspace({.T = 512, .D = 64}, DType::f32, true, 1) + 64 * 64 * 4 + 4096);
}

}  // namespace
}  // namespace trireme::testing
