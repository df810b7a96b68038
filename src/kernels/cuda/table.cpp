#include "kernels/cuda/tables.h"
#include "kernels/level_table.h"

namespace trireme::kernels::cuda {

const Table<float> kFloatTable = make_table<float>();
const Table<bfloat16> kBfloat16Table = make_table<bfloat16>();
const Table<float16> kFloat16Table = make_table<float16>();
const FlatTable kFlatTable = make_flat_table();

}  // namespace trireme::kernels::cuda
