// config.json of a Hugging Face model folder, in and out.
#pragma once
#include <string>

#include "layout/dtype.h"
#include "models/model.h"

namespace trireme {

struct HuggingFaceConfig {
  std::string model_type;  // "llama", "gemma3_text"
  ModelConfig model;       // head_dim and the like are always set
};

// Families: llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, gpt2, as transformers 4 and 5 write them. Fields
// that are not there have that family's defaults; sizes must be there. Every field is used, or known to change nothing,
// or refused by name.
//
// TR5060: no JSON, a field of another type, a size that is missing or out of bounds. TR2260: a model, or an option of
// one, that Trireme does not compute. place: the file, for messages.
HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& place);

// What else config.json says. -1: not given.
struct TokenIds {
  std::int64_t bos = -1, eos = -1, pad = -1;
};

// A config.json, in spellings that transformers 4 and 5 read, from which parse_hugging_face_config() makes the same
// model. TR2261 where no family computes what the model does.
std::string to_hugging_face_config(const ModelConfig& model, DType dtype, const TokenIds& tokens = {});

}  // namespace trireme
