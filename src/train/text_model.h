// A trained model that is only run forward, in fp32, on the CPU or a device, with the tokenizer that belongs to it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "data/tokenizer.h"
#include "engine/memory.h"

namespace trireme::train {

// A chain and its weights, in memory of this kind: host, or device.
struct ForwardModel {
  Chain chain;
  engine::MemoryKind memory = engine::MemoryKind::host;
  std::vector<engine::Memory> storage;
  std::vector<std::vector<Tensor>> parameters;  // of each unit
};

// read: writes the elements of a logical tensor to memory of the host, rows row_stride apart.
using ReadTensor = std::function<void(const LogicalTensor& tensor, float* out, std::int64_t row_stride)>;
ForwardModel load_forward_model(Chain chain, const ReadTensor& read,
                                engine::MemoryKind memory = engine::MemoryKind::host);

struct TextModel {
  ForwardModel model;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::vector<std::int32_t> before;  // what stands before a text
  std::vector<std::int32_t> ends;    // what ends one
};

// where: a run's output_dir (its newest checkpoint), its checkpoints folder or one step's folder; or a Hugging Face
// folder, or org/name of one in the local cache. memory: where its weights go.
//
// A text begins as the model's did in training: with the end-of-document mark (packed runs), or with what the tokenizer
// puts before one (padded runs, Hugging Face). It ends at that mark, and at the eos_token_id of generation_config.json
// or config.json.
//
// Errors: TR5052 no valid checkpoint, TR5053 the run's tokenizer is another than it was trained with; those of
// find_model_folder(), read_model_config(), ModelWeights and load_tokenizer(); TR2240 the tokenizer has more ids than
// the model.
TextModel load_text_model(const std::string& where, engine::MemoryKind memory = engine::MemoryKind::host);

}  // namespace trireme::train
