// Batches in an order that does not depend on the threads that make them ahead of time.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "chain/unit.h"
#include "data/dataset.h"
#include "layout/mesh.h"

namespace trireme::data {

struct LoaderOptions {
  std::int64_t micro_batch_size = 1;  // B
  MicroBatchSplit split;
  int data_rank = 0;
  int num_workers = 1;  // threads; 0: next() makes the step itself
  int prefetch = 2;     // steps that each worker makes ahead
};

// What the steps made ahead take, for samples of T positions.
std::int64_t loader_bytes(const LoaderOptions& options, std::int64_t sequence);

// This rank's share of one step.
struct StepBatches {
  std::uint64_t first_position = 0;                 // the step's cursor; the step takes M * B positions
  std::vector<Batch> rounds;                        // one a round; shape.batch == 0 where this rank has none
  std::vector<std::vector<std::uint64_t>> samples;  // the sample ids of each
  std::int64_t valid_labels = 0;                    // of this rank
  std::shared_ptr<void> memory;                     // owns what the batches point to
};

// Rank r works in round k on positions start + (k*R + r)*B + b.
class Loader {
 public:
  // The data set must outlive the loader, whose threads start at once.
  Loader(const Dataset& dataset, SampleOrder order, const LoaderOptions& options);
  ~Loader();
  void seek(std::uint64_t position);  // at a step boundary; drops what was made ahead
  StepBatches next();                 // waits; an error of a worker thread is thrown here
  double last_wait_seconds() const;   // how long next() waited, or worked itself

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::data
