// Rotary position embedding, Hugging Face's convention: pairs (i, i + D/2) of each head.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "chain/unit.h"
#include "kernels/device.h"

namespace trireme {

// How frequencies are stretched for sequences longer than the model was first trained on: config.json's rope_scaling.
struct RopeScaling {
  enum class Kind : std::uint8_t {
    none,
    linear,    // positions divided by factor
    dynamic,   // changes nothing up to original_max_positions, where the model's positions must therefore end
    llama3,    // long wavelengths divided by factor, a smooth passage to short ones
    yarn,      // by dimension, with cosines and sines scaled too
    longrope,  // a factor for each frequency: short_factors while all positions of a micro-batch are below
               // original_max_positions, else long_factors
  };
  Kind kind = Kind::none;
  double factor = 1;                        // all kinds but longrope, where it gives the default of attention_factor
  std::int64_t original_max_positions = 0;  // dynamic, llama3, yarn, longrope
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;                        // yarn
  double mscale = 0, mscale_all_dim = 0;                       // yarn; 0: not given
  bool truncate = true;                                        // yarn
  std::optional<double> attention_factor;           // yarn, longrope: of cosines and sines; unset: from the others
  std::vector<double> short_factors, long_factors;  // longrope, D/2 each
  bool operator==(const RopeScaling&) const = default;
};

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling;
  bool operator==(const Rope&) const = default;
};

// cos_sin[positions][D], shared by the blocks of a model.
using RopeTable = std::shared_ptr<const kernels::Constants>;
struct RopeTables {
  RopeTable table;            // nullptr: no rotation
  RopeTable long_table;       // longrope's other; nullptr: there is none
  std::int64_t boundary = 0;  // the first position that asks for it
  const RopeTable& of(const Batch& batch) const;
  std::int64_t bytes() const;
};
// Throws Error TR1201 with the name of the value for a scaling that cannot be. name: "model.rope_scaling".
RopeTables make_rope_tables(std::int64_t positions, std::int64_t D, const Rope& rope, const std::string& name);

// Rotates the first `heads` heads of each row of x [N, row_stride] in place. positions [N].
void rope_forward(const Tensor& x, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                  const RopeTable& table);
// The gradient of that, in place: the rotation the other way.
void rope_backward(const Tensor& dx, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                   const RopeTable& table);

}  // namespace trireme
