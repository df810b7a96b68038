// The tables of this library.
#pragma once
#include "kernels/gemm_table.h"
#include "kernels/kernels.h"

namespace trireme::kernels::cuda {

extern const Table<float> kFloatTable;
extern const Table<bfloat16> kBfloat16Table;
extern const Table<float16> kFloat16Table;
extern const FlatTable kFlatTable;
extern const GemmTable kGemmTable;

}  // namespace trireme::kernels::cuda
