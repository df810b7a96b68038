// Random slots and the serial sums that the ordered collectives must equal bit for bit.
#pragma once
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "comm/collectives.h"

namespace trireme::comm {

struct ReduceCase {
  int world_size = 1, participants = 1;
  std::int64_t slice_numel = 0;
  ReduceTypes types;
  bool first = true;
};

// Of the types that slots have.
inline DType random_dtype(std::mt19937_64& random) {
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  return kTypes[random() % 3];
}

inline ReduceCase random_case(std::mt19937_64& random, int world_size, std::int64_t max_slice) {
  return {.world_size = world_size,
          .participants = 1 + static_cast<int>(random() % world_size),
          .slice_numel = static_cast<std::int64_t>(random() % max_slice),
          .types = {random_dtype(random), random_dtype(random), random_dtype(random)},
          .first = random() % 2 == 0};
}

inline void put(std::vector<std::byte>& values, DType dtype, std::int64_t i, float value) {
  const bfloat16 brain(value);
  const float16 half(value);
  const void* source = &value;
  if (dtype == DType::bf16) source = &brain;
  if (dtype == DType::f16) source = &half;
  std::memcpy(values.data() + i * size_of(dtype), source, size_of(dtype));
}

// Values of very different sizes, so that another order of summation rounds to other bits.
inline std::vector<std::byte> random_slot(std::mt19937_64& random, DType dtype, std::int64_t numel) {
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<std::byte> slot(numel * size_of(dtype));
  for (std::int64_t i = 0; i < numel; ++i) {
    const float value = std::ldexp(mantissa(random), static_cast<int>(random() % 40) - 24);  // fp16's range
    put(slot, dtype, i, value);
  }
  return slot;
}

inline std::vector<float> random_floats(std::mt19937_64& random, std::int64_t numel) {
  const std::vector<std::byte> bytes = random_slot(random, DType::f32, numel);
  std::vector<float> values(numel);
  if (numel > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline float element(const std::vector<std::byte>& slot, DType dtype, std::int64_t i) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, slot.data() + i * 4, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, slot.data() + i * 2, 2);
  if (dtype == DType::f16) return std::bit_cast<float16>(bits);
  return std::bit_cast<bfloat16>(bits);
}

inline float rounded(float value, DType dtype) {
  if (dtype == DType::bf16) return bfloat16(value);
  if (dtype == DType::f16) return float16(value);
  return value;
}

// What rank's accumulator, of types.sum, must hold after the reduce-scatter.
inline std::vector<std::byte> serial_sum(const ReduceCase& c, int rank,
                                         const std::vector<std::vector<std::byte>>& slots,
                                         std::vector<std::byte> accumulator) {
  for (std::int64_t i = rank * c.slice_numel; i < (rank + 1) * c.slice_numel; ++i) {
    float sum = element(accumulator, c.types.sum, i);
    for (int r = 0; r < c.participants; ++r) {
      const float value = rounded(element(slots[r], c.types.slot, i), c.types.wire);
      sum = rounded(c.first && r == 0 ? value : sum + value, c.types.sum);
    }
    put(accumulator, c.types.sum, i, sum);
  }
  return accumulator;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace trireme::comm
