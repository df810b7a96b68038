#include "engine/gradient_sum.h"

#include <algorithm>
#include <memory>

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme::engine {

namespace {

constexpr std::int64_t kBlock = std::int64_t{64} << 10;  // elements: enough for all threads, little beside a group

void widen(std::int64_t numel, const std::byte* values, DType dtype, float* wide) {
  dispatch(dtype,
           [&]<class T>(T) { kernels::table<T>().cast_to_float(numel, reinterpret_cast<const T*>(values), wide); });
}

void narrow(std::int64_t numel, const float* wide, DType dtype, std::byte* values) {
  dispatch(dtype, [&]<class T>(T) { kernels::table<T>().cast_from_float(numel, wide, reinterpret_cast<T*>(values)); });
}

std::unique_ptr<float[]> block_of(std::int64_t numel) {
  return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(std::min(numel, kBlock)));
}

template <class Visit>
void for_each_range(std::int64_t numel, Visit visit) {
  for (std::int64_t first = 0; first < numel; first += kBlock) visit(first, std::min(kBlock, numel - first));
}

}  // namespace

void add_gradient(std::int64_t numel, const std::byte* slot, const comm::ReduceTypes& types, std::byte* sum,
                  bool overwrite) {
  if (types.wire == types.slot && types.sum == DType::f32) {
    return dispatch(types.slot, [&]<class T>(T) {
      kernels::table<T>().accumulate(numel, reinterpret_cast<const T*>(slot), reinterpret_cast<float*>(sum), overwrite);
    });
  }
  const auto values = block_of(numel), total = block_of(numel), spare = block_of(numel);
  auto* rounded = reinterpret_cast<std::byte*>(spare.get());
  for_each_range(numel, [&](std::int64_t first, std::int64_t count) {
    widen(count, slot + first * size_of(types.slot), types.slot, values.get());
    if (types.wire != types.slot) {
      narrow(count, values.get(), types.wire, rounded);
      widen(count, rounded, types.wire, values.get());
    }
    std::byte* sums = sum + first * size_of(types.sum);
    if (!overwrite) widen(count, sums, types.sum, total.get());
    kernels::table<float>().accumulate(count, values.get(), total.get(), overwrite);
    narrow(count, total.get(), types.sum, sums);
  });
}

float value_at(const std::byte* sums, DType dtype, std::int64_t index) {
  float value = 0;
  widen(1, sums + index * size_of(dtype), dtype, &value);
  return value;
}

}  // namespace trireme::engine
