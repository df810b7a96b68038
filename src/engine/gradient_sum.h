// Gradient sums in fp32 or bf16: adding to them, and reading them in fp32.
#pragma once
#include <cstddef>
#include <cstdint>

#include "comm/collectives.h"
#include "layout/dtype.h"

namespace trireme::engine {

// sum (+)= slot, as the ordered collectives add a rank's slot: rounded to types.wire, added in fp32, rounded to
// types.sum. On all compute threads.
void add_gradient(std::int64_t numel, const std::byte* slot, const comm::ReduceTypes& types, std::byte* sum,
                  bool overwrite);

float value_at(const std::byte* sums, DType dtype, std::int64_t index);

}  // namespace trireme::engine
