#include "kernels/cuda/tables.h"
#include "kernels/level_table.h"

namespace trireme::kernels::cuda {

const Table<float> kFloatTable = make_table<float>();
const Table<bfloat16> kBfloat16Table = make_table<bfloat16>();
const Table<float16> kFloat16Table = make_table<float16>();
const FlatTable kFlatTable = {
    .adamw = adamw, .adam = adam, .sgd = sgd, .adagrad = adagrad, .lion = lion, .sum_of_squares = sum_of_squares};

}  // namespace trireme::kernels::cuda
