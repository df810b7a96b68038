// The complaints that users of other trainers filed, each as a test of what is right. Above each test stand the public
// issues: DS deepspeedai/DeepSpeed, TF huggingface/transformers, AC huggingface/accelerate, PT pytorch/pytorch,
// TT pytorch/torchtitan, MG NVIDIA/Megatron-LM; others by their full name.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/temporary_folder.h"
#include "train/tiny_run.h"

namespace trireme::testing {

inline void expect_same(const TinyResult& run, const TinyResult& other) {
  EXPECT_EQ(run.losses, other.losses);
  EXPECT_EQ(run.learning_rates, other.learning_rates);
  EXPECT_EQ(run.gradient_norms, other.gradient_norms);
  EXPECT_EQ(run.weights_digest, other.weights_digest);
  EXPECT_TRUE(run.all_ranks_equal);
}

// Stops after so many steps on so many ranks, leg after leg, and goes on to the end with the last leg. The losses,
// rates, norms and samples of all legs one after the other; the weights of the last.
struct Leg {
  std::int64_t until;  // of the last leg: the run's own end
  int ranks;
  std::vector<std::string> overrides = {};
};
inline TinyResult train_in_legs(const TinyRun& base, const std::vector<Leg>& legs) {
  const TemporaryFolder folder;
  TinyResult all;
  for (std::size_t i = 0; i < legs.size(); ++i) {
    TinyRun run = with(base, legs[i].overrides);
    run.output_dir = folder.path() / "run";
    run.ranks = legs[i].ranks;
    const bool last = i + 1 == legs.size();
    run.stop_at = [&](int, std::int64_t step) { return !last && step == legs[i].until; };
    TinyResult part = train_tiny(run);
    EXPECT_EQ(part.stopped, !last);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.losses, part.losses);
    append(all.learning_rates, part.learning_rates);
    append(all.gradient_norms, part.gradient_norms);
    for (auto& [step, ids] : part.samples) all.samples[step].insert(all.samples[step].end(), ids.begin(), ids.end());
    all.weights_digest = part.weights_digest;
    all.all_ranks_equal = part.all_ranks_equal;
  }
  return all;
}

}  // namespace trireme::testing
