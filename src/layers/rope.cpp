#include "layers/rope.h"

#include "kernels/kernels.h"
#include "layers/dispatch.h"

namespace trireme {

RopeTable make_rope_table(std::int64_t positions, std::int64_t D, double theta) {
  auto table = std::make_shared<std::vector<float>>(positions * D);
  kernels::make_rope_table(positions, D, theta, table->data());
  return table;
}

namespace {

void rotate(const Tensor& x, std::int64_t heads, std::int64_t D, const std::int32_t* positions, const RopeTable& table,
            int sign) {
  dispatch(x.dtype, [&]<class T>(T) {
    kernels::table<T>().rope(x.sizes[0], heads, D, x.sizes[1], x.as<T>(), positions, table->data(), sign);
  });
}

}  // namespace

void rope_forward(const Tensor& x, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                  const RopeTable& table) {
  rotate(x, heads, D, positions, table, +1);
}

void rope_backward(const Tensor& dx, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                   const RopeTable& table) {
  rotate(dx, heads, D, positions, table, -1);
}

}  // namespace trireme
