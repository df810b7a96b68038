#include "kernels/level_table.h"

namespace trireme::kernels::TRIREME_LEVEL {

constexpr Table<float> kFloatTable = make_table<float>();
constexpr Table<bfloat16> kBfloat16Table = make_table<bfloat16>();
constexpr Table<float16> kFloat16Table = make_table<float16>();
constexpr Table<double> kDoubleTable = make_table<double>();
constexpr FlatTable kFlatTable = make_flat_table();

}  // namespace trireme::kernels::TRIREME_LEVEL
