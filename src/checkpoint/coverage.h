// Whether boxes cover a matrix exactly: inside it, no element twice, none left out.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/parameter.h"

namespace trireme::checkpoint {

// A tensor of any shape as a matrix: rows are the first dimension, columns all the others; a vector is one row, a
// scalar 1 by 1. None where the number of elements does not fit into 62 bits.
std::optional<Box> matrix_of(std::span<const std::int64_t> shape);

// What is wrong, or nothing. O(n log n).
std::optional<std::string> coverage_problem(std::vector<Box> boxes, const Box& whole);

}  // namespace trireme::checkpoint
