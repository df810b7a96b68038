// Calls a generic function with a value of the element type that a tensor has at run time.
#pragma once
#include "base/error.h"
#include "layout/dtype.h"

namespace trireme {

template <class Function>
decltype(auto) dispatch(DType dtype, Function function) {
  switch (dtype) {
    case DType::f32: return function(float{});
    case DType::bf16: return function(bfloat16{});
    case DType::f16: return function(float16{});
    case DType::f64: return function(double{});
    default: fail_check("dtype", __FILE__, __LINE__, "numbers are float32, bfloat16, float16 or float64");
  }
}

// The value that an element of the type has for it.
inline double rounded(double value, DType dtype) {
  return dispatch(dtype, [value]<class T>(T) -> double {
    if constexpr (sizeof(T) == sizeof(double)) return value;
    return static_cast<float>(T(static_cast<float>(value)));
  });
}

}  // namespace trireme
