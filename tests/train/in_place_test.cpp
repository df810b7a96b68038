// Gradients that units add to the sums themselves, beside those that wait in slots: on the CPU, where no configuration
// asks for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "train/engine_run.h"

namespace trireme::testing {
namespace {

struct Outcome {
  EngineResult result;
  std::int64_t slots = 0, accumulates = 0;  // of rank 0's plan
};

Outcome run_one(const TinyRun& run, bool in_place) {
  Outcome outcome;
  std::mutex mutex;
  EngineRun wanted{.run = run};
  wanted.change = [=](engine::EngineOptions& options) { options.adds_in_place = in_place; };
  wanted.begin = [&](engine::Engine& engine, const Chain&) {
    const schedule::Program& program = engine.plan().program();
    const std::lock_guard lock(mutex);
    if (program.rank != 0) return;
    outcome.slots = std::count_if(program.buffers.begin(), program.buffers.end(), [](const schedule::Buffer& buffer) {
      return buffer.kind == schedule::BufferKind::gradient_slot;
    });
    outcome.accumulates =
        std::count_if(program.instructions.begin(), program.instructions.end(),
                      [](const schedule::Instruction& one) { return one.op == schedule::Op::accumulate; });
  };
  outcome.result = run_engines(wanted);
  return outcome;
}

// In one order or another: the numbers are those of the slots but for their rounding.
void expect_those_of_slots(const TinyRun& run) {
  const Outcome slots = run_one(run, false), in_place = run_one(run, true);
  EXPECT_GT(slots.slots * slots.accumulates, 0);
  EXPECT_EQ(in_place.slots + in_place.accumulates, 0);
  EXPECT_TRUE(in_place.result.all_ranks_equal);
  ASSERT_EQ(in_place.result.reports.size(), slots.result.reports.size());
  for (std::size_t i = 0; i < slots.result.reports.size(); ++i) {
    const engine::StepReport &found = in_place.result.reports[i], &expected = slots.result.reports[i];
    EXPECT_NEAR(found.loss, expected.loss, 1e-4) << "step " << i + 1;
    EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 1e-4 * expected.gradient_norm) << "step " << i + 1;
  }
}

TEST(SumsInPlace, AreThoseOfTheSlots) {
  for (const bool gpt2 : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const auto& [ranks, strategy] : {std::pair{1, "ddp"}, {2, "ddp"}, {2, "zero1"}, {3, "ddp"}}) {
        SCOPED_TRACE(::testing::Message()
                     << strategy << " on " << ranks << (gpt2 ? ", gpt2" : "") << (tied ? ", tied" : ""));
        expect_those_of_slots(with({.ranks = ranks,
                                    .micro_batches = 5,
                                    .steps = 5,
                                    .reduce_each_micro_batch = false,
                                    .tied = tied,
                                    .gpt2 = gpt2},
                                   {std::string("distributed.strategy=") + strategy}));
      }
    }
  }
}

TEST(SumsInPlace, AreThoseOfTheSlotsWhateverElseTheStepDoes) {
  for (const char* setting :
       {"distributed.offload_optimizer=cpu", "training.gradient_checkpointing=full",
        "training.freeze=[model.layers.0.*]", "training.loss_chunk_tokens=3", "distributed.auto_wrap=none",
        "training.gradient_clipping=0", "distributed.overlap_comm=false"}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << setting << " on " << ranks);
      expect_those_of_slots(with({.ranks = ranks, .micro_batches = 4, .steps = 4, .reduce_each_micro_batch = false},
                                 {ranks == 1 ? "distributed.strategy=ddp" : "distributed.strategy=zero1", setting}));
    }
  }
}

// bf16 slots beside fp32 sums are two types: they stay.
TEST(SumsInPlace, AreLeftToSlotsOfAnotherType) {
  const TinyRun run{.micro_batches = 3, .steps = 2, .reduce_each_micro_batch = false, .bf16 = true};
  const Outcome asked = run_one(run, true), plain = run_one(run, false);
  EXPECT_GT(asked.slots * asked.accumulates, 0);
  EXPECT_EQ(asked.result.weights_digest, plain.result.weights_digest);
}

}  // namespace
}  // namespace trireme::testing
