// The rotary position embedding's part of a config.json: rope_theta with rope_scaling, or rope_parameters.
#pragma once
#include "layers/rope.h"
#include "models/hugging_face_fields.h"

namespace trireme {

// rope_parameters (transformers 5) or rope_theta and rope_scaling (4).
Rope read_rope(HuggingFaceFields& fields, double default_theta, std::int64_t max_positions, std::int64_t head_dim);

// Gemma 3's two: of layers that see all, and of those with a window.
struct TwoRopes {
  Rope full, windowed;
};
TwoRopes read_two_ropes(HuggingFaceFields& fields, std::int64_t max_positions, std::int64_t head_dim);

// As transformers 4 spells it; null for none.
nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling);

}  // namespace trireme
