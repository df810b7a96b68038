// The matrix products of gemm on devices, whose library knows several ways to compute each: which of them is fastest is
// measured, once for a kind of card and a version of the library.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "layout/dtype.h"

namespace trireme::kernels {

// As gemm and gemm_unrounded take it, whatever is added to it but a bias.
struct Product {
  DType operands, result;
  bool a_transposed, b_transposed, has_bias;
  std::int64_t m, n, k, lda, ldb, ldc;
  auto operator<=>(const Product&) const = default;  // NOLINT(modernize-use-nullptr): it means the 0 of an ordering
  double flops() const { return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};
std::string to_string(const Product& product);  // "bfloat16 bfloat16 NT 4096 x 2048 x 768, 768 768 2048, bias"

// A way's number in the library's own list, in which 0 is the one that it advises.
using ProductChoices = std::map<Product, int>;

// For what choices hold: the library, its version and the kind of the calling thread's device.
std::string product_library();
// The fastest way, measured now on the calling thread's stream with memory taken for it: Error TR1301 where there is
// not enough. Another way than 0 must be faster by more than what measurements differ by.
int measure_product(const Product& product);
// From now on in this process, on all devices; products that are not named are computed in way 0, as one is of which
// the library knows fewer ways. The bits of a product are those of its way.
void choose_products(const ProductChoices& choices);

}  // namespace trireme::kernels
