// From the plan and the facts of model, data and world size to the numbers of one run. Pure: no files, no processes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/plan.h"
#include "engine/engine.h"
#include "models/model.h"
#include "optim/law.h"
#include "train/batch.h"

namespace trireme::train {

struct DataFacts {
  std::int64_t vocabulary = 0;
  std::uint64_t num_samples = 0;  // of the train split
};

struct ResolvedRun {
  ModelConfig model;
  DType compute_dtype = DType::f32;
  bool recompute_wide = false;      // of make_chain()
  std::vector<std::string> freeze;  // patterns of tensors
  engine::EngineOptions engine;
  optim::Law law;
  std::int64_t total_steps = 0;
  std::int64_t global_batch_size = 0;  // samples
  std::int64_t tokens_per_step = 0;
  std::vector<std::string> notices;
};

// Throws Error TR22xx for what cannot be: batches as batch_of(), another optimizer than the checkpoint's, replicas and
// slices that do not make up the ranks, a vocabulary below the tokenizer's, less than one step of data.
//
// model: of the folder of model.path, or given in place of the plan's; null: the plan's sizes are the model's.
ResolvedRun resolve(const config::Plan& plan, const DataFacts& data, const Ranks& ranks,
                    const std::optional<ResumeFacts>& resume = std::nullopt, const ModelConfig* model = nullptr);

}  // namespace trireme::train
