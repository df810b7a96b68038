// The tables of this library.
#pragma once
#include "kernels/device.h"
#include "kernels/gemm_table.h"
#include "kernels/kernels.h"
#include "kernels/products.h"

namespace trireme::kernels::cuda {

extern const Table<float> kFloatTable;
extern const Table<bfloat16> kBfloat16Table;
extern const Table<float16> kFloat16Table;
extern const FlatTable kFlatTable;
extern const GemmTable kGemmTable;
std::string product_library();
int measure_product(const Product& product);
void choose_products(const ProductChoices& choices);
void fill_normal_rows(const NormalRows& rows, DType dtype, void* out);

}  // namespace trireme::kernels::cuda
