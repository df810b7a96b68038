// The matrix products and the attention of a known model, run and timed by themselves, as its units run them.
#pragma once
#include <string>
#include <vector>

#include "chain/unit.h"
#include "measure/step_work.h"
#include "measure/timing.h"

namespace trireme::measure {

struct WorkRow {
  std::string work, part;            // "down", "weight gradient"; "attention", "forward"; "copy", ""
  std::int64_t m = 0, n = 0, k = 0;  // of a product; of attention B, T, and D
  double times = 0;                  // in a micro-batch
  double flops = 0, bytes = 0;       // of one; what is not counted is 0
  Timing seconds;
};

struct WorkOptions {
  BatchShape micro_batch;
  bool on_device = false;  // the first CUDA device, else the CPU
  bool products = false, attention = false, copy = false;
  bool deterministic = true;  // attention
  double seconds = 20;        // altogether; the first quarter warms the device up and does not count
};

// In bf16, in turn, until the time is over.
std::vector<WorkRow> measure_work(const ModelShape& shape, const WorkOptions& options);

// Of rows of all three kinds.
StepRates step_rates(const std::vector<WorkRow>& rows);

}  // namespace trireme::measure
