#include "engine/gradient_sum.h"

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme::engine {

void add_gradient(std::int64_t numel, const std::byte* slot, const comm::ReduceTypes& types, std::byte* sum,
                  bool overwrite) {
  dispatch(types.slot, [&]<class T>(T) {
    const T* const typed = reinterpret_cast<const T*>(slot);
    kernels::table<T>().accumulate_all(numel, 1, &typed, types.wire, types.sum, sum, overwrite);
  });
}

float value_at(const std::byte* sums, DType dtype, std::int64_t index) {
  return dispatch(dtype, [&]<class T>(T) { return static_cast<float>(reinterpret_cast<const T*>(sums)[index]); });
}

}  // namespace trireme::engine
