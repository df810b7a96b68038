#include "kernels/products.h"

#include "base/error.h"
#include "kernels/cuda/library.h"

namespace trireme::kernels {

std::string to_string(const Product& p) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  return std::string(to_string(p.operands)) + " " + std::string(to_string(p.result)) + " " +
         (p.a_transposed ? "T" : "N") + (p.b_transposed ? "T" : "N") + " " + number(p.m) + " x " + number(p.n) + " x " +
         number(p.k) + ", " + number(p.lda) + " " + number(p.ldb) + " " + number(p.ldc) + (p.has_bias ? ", bias" : "");
}

static const CudaLibrary& library_of_device() {
  const CudaLibrary* device = current_device();
  TRIREME_CHECK(device != nullptr, "products of a device were asked for on none");
  return *device;
}

std::string product_library() {
  return library_of_device().product_library();
}
int measure_product(const Product& product) {
  return library_of_device().measure_product(product);
}
void choose_products(const ProductChoices& choices) {
  library_of_device().choose_products(choices);
}

}  // namespace trireme::kernels
