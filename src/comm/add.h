// The additions of the ordered reductions: one chunk of one rank's values into a sum. float32, bfloat16 and float16.
#pragma once
#include <cstddef>
#include <cstdint>

#include "layout/dtype.h"

namespace trireme::comm {

// sum[i] (+)= values[i], added in fp32 and rounded to the sum's type; overwrites where `overwrite`. numel elements
// each, no overlap.
void add_values(std::byte* sum, DType sum_dtype, const std::byte* values, DType dtype, std::int64_t numel,
                bool overwrite);

// to[i] = from[i], rounded to nearest. No overlap.
void convert_values(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t numel);

}  // namespace trireme::comm
