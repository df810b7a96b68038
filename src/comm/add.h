// The additions of the ordered reductions: one chunk of one rank's slot into an fp32 sum.
#pragma once
#include <cstddef>
#include <cstdint>

#include "layout/dtype.h"

namespace trireme::comm {

// sum[i] (+)= values[i] as fp32; overwrites where `overwrite`. values: numel elements of dtype f32, bf16 or f16, no
// overlap with sum.
void add_values(float* sum, const std::byte* values, DType dtype, std::int64_t numel, bool overwrite);

}  // namespace trireme::comm
