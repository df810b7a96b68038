#include "layout/dtype.h"

#include <string>

#include "base/error.h"

namespace trireme {
namespace {

struct Names {
  DType dtype;
  std::string_view plain, safetensors;
};

constexpr Names kNames[] = {{DType::f32, "float32", "F32"}, {DType::bf16, "bfloat16", "BF16"},
                            {DType::f16, "float16", "F16"}, {DType::f64, "float64", "F64"},
                            {DType::i64, "int64", "I64"},   {DType::i32, "int32", "I32"},
                            {DType::u8, "uint8", "U8"}};

const Names& names_of(DType dtype) {
  for (const Names& names : kNames) {
    if (names.dtype == dtype) return names;
  }
  fail_check("dtype", __FILE__, __LINE__, "no such element type");
}

}  // namespace

std::string_view to_string(DType dtype) {
  return names_of(dtype).plain;
}

std::string_view safetensors_name(DType dtype) {
  return names_of(dtype).safetensors;
}

DType dtype_from_safetensors(std::string_view name) {
  for (const Names& names : kNames) {
    if (names.safetensors == name) return names.dtype;
  }
  throw Error(5020, "", "unknown element type \"" + std::string(name.substr(0, 64)) + "\"",
              "the types F32, BF16, F16, F64, I64, I32 and U8 are read; convert the file");
}

}  // namespace trireme
