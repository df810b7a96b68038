// Loss scales that were applied at the wrong place, and runs that ended without saying why.
#include <cmath>

#include "complaints/support.h"
#include "support/expect_error.h"
#include "train/engine_run.h"

namespace trireme::testing {
namespace {

// DS#2686: on the step at which the scale grew, gradients were divided by the new one.
TEST(Complaints, GradientsAreDividedByTheScaleOfTheirOwnBackward) {
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    const TinyRun run = with({.ranks = 2, .micro_batches = 4, .steps = 6, .output_dir = "run"},
                             {std::string("distributed.strategy=") + strategy});
    const EngineResult unscaled = run_engines({.run = run});
    const EngineResult scaled = run_engines({.run = run, .change = [](engine::EngineOptions& options) {
                                               options.loss_scale = {.initial_power = 4, .window = 1};
                                               options.skips_non_finite = true;
                                             }});
    EXPECT_GT(scaled.loss_scale.scale, 16) << "the scale grew";
    EXPECT_EQ(scaled.weights_digest, unscaled.weights_digest) << strategy << ": a power of two changes no bit";
    for (std::size_t i = 0; i < unscaled.reports.size(); ++i) {
      EXPECT_EQ(scaled.reports[i].gradient_norm, unscaled.reports[i].gradient_norm) << strategy << ", step " << i + 1;
    }
  }
}

// microsoft/DeepSpeedExamples#418, #531, hiyouga/LlamaFactory#251, #986: a run in fp16 died at the least scale with no
// word about what had overflowed.
TEST(Complaints, ARunThatDiesAtTheLeastScaleSaysWhatOverflowedAndWhatHelps) {
  for (const char* strategy : {"ddp", "zero3"}) {
    const TinyRun run =
        with({.ranks = 2, .micro_batches = 4, .steps = 4},
             {std::string("distributed.strategy=") + strategy, "training.mixed_precision=fp16",
              "training.initial_scale_power=30", "training.min_loss_scale=1073741824", "training.hysteresis=1"});
    const std::string text = expect_error(1303, [&] { train_tiny(run); });
    EXPECT_NE(text.find("the loss was "), std::string::npos) << text;
    EXPECT_NE(text.find("rank "), std::string::npos) << text;
    EXPECT_TRUE(text.find("model.") != std::string::npos || text.find("lm_head") != std::string::npos) << text;
    EXPECT_NE(text.find("bf16"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trireme::testing
