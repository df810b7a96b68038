// Weights between the element types that files have and fp32.
#pragma once
#include <cstddef>
#include <cstdint>

#include "layout/dtype.h"

namespace trireme::checkpoint {

// Whether weights may have this type: fp64, fp32, bf16, fp16.
bool is_weight_type(DType dtype);

// n elements, which lie without alignment. fp64 rounds to nearest; all others are exact.
void to_float(DType dtype, const std::byte* from, std::int64_t n, float* to);

// n elements to fp32, bf16 or fp16, each rounded to nearest even; beyond fp16's largest: infinity, as others have it.
void from_float(DType dtype, const float* from, std::int64_t n, std::byte* to);

}  // namespace trireme::checkpoint
