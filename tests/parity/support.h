// Buffers, random values and shapes for the parity tests.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "chain/unit.h"
#include "parity/reference.h"

namespace trireme::parity {

// Memory with exactly the bytes asked for, at a multiple of 64, poisoned with NaN and followed by a guard.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes);
  Buffer(const Value& value, DType dtype);  // rounded to dtype
  std::byte* data() const { return memory_.get(); }
  Tensor tensor() const { return tensor_; }  // of the value's shape, as a matrix
  Value read() const;
  Buffer(Buffer&&) = default;
  ~Buffer();  // fails the test when something was written behind the end

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::int64_t bytes_;
  std::unique_ptr<std::byte[], Free> memory_;
  Tensor tensor_;
  std::vector<std::int64_t> sizes_;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
  template <class Item>
  Item one_of(std::initializer_list<Item> items) {
    return items.begin()[below(std::ssize(items))];
  }
  // Normal values, as dtype has them, so that reference and kernels start from the same.
  Value normal(std::vector<std::int64_t> sizes, DType dtype, double deviation = 1.0, double mean = 0.0);

 private:
  std::mt19937_64 engine_;
};

struct Case {
  LlamaConfig config;
  Inputs inputs;
};
// Odd sizes: T of 1, 7, 33, 129; B of 1 .. 3; H/K of 1 .. 3; D of 2 .. 64; with and without document borders, ignored
// labels and positions that do not start at 0; half of them with options of other families.
Case random_case(Random& random);
std::string to_string(const Case& c);

// ||a - b|| / ||b||; a - b's norm itself where b is zero.
double relative_difference(const Value& a, const Value& b);
double root_mean_square(const Value& value);

// Parameters and their gradients of a unit or a model.
std::vector<Value> random_parameters(const std::vector<ParameterSpec>& specs, const std::vector<int>& indices,
                                     DType dtype, Random& random);

}  // namespace trireme::parity
