// The one set-up of the training tests: a tiny Llama on a small made-up text, ranks as threads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/plan.h"
#include "train/trainer.h"

namespace trireme::testing {

struct TinyRun {
  int ranks = 1;
  int micro_batches = 4;     // M
  int micro_batch_size = 2;  // B
  int steps = 20;            // 0: no max_steps
  bool reduce_each_micro_batch = true;
  bool tied = true;
  bool bf16 = false;
  bool gpt2 = false;                   // with dropout, in place of the Llama
  std::filesystem::path output_dir;    // empty: a folder of its own, gone after the run
  std::filesystem::path data;          // empty: tiny_data()
  std::vector<std::string> overrides;  // key=value, last
  // Asked on every rank before each step s: true requests a stop from that rank (it takes effect after step s).
  std::function<bool(int rank, std::int64_t step)> stop_at;
};

struct TinyResult {
  std::vector<double> losses, learning_rates, gradient_norms;  // of rank 0, one a step
  std::map<std::int64_t, std::vector<std::uint64_t>> samples;  // by step, all ranks', sorted
  std::string weights_digest;    // masters and the optimizer's state of all ranks, by logical name
  bool all_ranks_equal = false;  // what several ranks hold has the same bits on all
  bool stopped = false;
  std::int64_t last_step = 0;
};

// The folder of prepared data that all tests of this process share.
const std::filesystem::path& tiny_data();

// Another one, of 50 documents of 1 to 40 bytes: samples of 16 tokens pad some of them and cut others. texts: as they
// were prepared, in order.
struct ShortDocuments {
  std::filesystem::path folder;
  std::vector<std::string> texts;
};
const ShortDocuments& short_documents();

config::Plan tiny_plan(const TinyRun& run);

// The run with more overrides, which come last.
TinyRun with(TinyRun run, const std::vector<std::string>& overrides);

// Those that compute the same without asking for more keys.
inline constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "zero3", "shard_grad_op"};

// The run on ranks of a strategy, with `more` in place of its overrides.
TinyRun with_strategy(TinyRun run, const char* strategy, int ranks, const std::vector<std::string>& more = {});

// Trains on `ranks` threads. The first exception of any rank comes out, after all threads have ended.
TinyResult train_tiny(const TinyRun& run);

}  // namespace trireme::testing
