// The kernel level of this process, and its tables.
#include <cstdlib>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/cuda/library.h"
#include "kernels/kernels.h"

namespace trireme::kernels {

#define TRIREME_TABLES(level)                  \
  namespace level {                            \
  extern const Table<float> kFloatTable;       \
  extern const Table<bfloat16> kBfloat16Table; \
  extern const Table<float16> kFloat16Table;   \
  extern const Table<double> kDoubleTable;     \
  extern const FlatTable kFlatTable;           \
  }
TRIREME_TABLES(baseline)
TRIREME_TABLES(avx2)
TRIREME_TABLES(avx512)

namespace {

bool cpu_has(Level level) {
  switch (level) {
    case Level::baseline: return x86_64_level() >= 2;
    case Level::avx2: return x86_64_level() >= 3;
    case Level::avx512: return x86_64_level() >= 4;
  }
  return false;
}

Level best_level() {
  for (Level level : {Level::avx512, Level::avx2}) {
    if (cpu_has(level)) return level;
  }
  if (!cpu_has(Level::baseline)) {
    throw Error(3060, "this machine", "the CPU is older than x86-64-v2 (SSE4.2), the least that Trireme needs");
  }
  return Level::baseline;
}

Level choose_level() {
  const char* wanted = std::getenv("TRIREME_CPU_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return best_level();
  for (Level level : {Level::baseline, Level::avx2, Level::avx512}) {
    if (wanted != to_string(level)) continue;
    if (cpu_has(level)) return level;
    throw Error(3060, "TRIREME_CPU_LEVEL", std::string("this CPU has not got level ") + wanted,
                "unset it, or take " + std::string(to_string(best_level())));
  }
  throw Error(3060, "TRIREME_CPU_LEVEL", std::string("there is no level \"") + wanted + "\"",
              "take baseline, avx2 or avx512, or unset it");
}

// The tables of a level; one the CPU cannot run is refused here, not by SIGILL.
template <class Choice>
const Choice& of_level(Level level, const Choice& baseline, const Choice& avx2, const Choice& avx512) {
  if (!cpu_has(level)) {
    throw Error(3060, "kernel level", "this CPU has not got level " + std::string(to_string(level)));
  }
  return level == Level::avx512 ? avx512 : level == Level::avx2 ? avx2 : baseline;
}

}  // namespace

std::string_view to_string(Level level) {
  switch (level) {
    case Level::baseline: return "baseline";
    case Level::avx2: return "avx2";
    case Level::avx512: return "avx512";
  }
  return "unknown";
}

Level level() {
  static const Level chosen = choose_level();
  return chosen;
}

template <>
const Table<float>& table(Level level) {
  return of_level(level, baseline::kFloatTable, avx2::kFloatTable, avx512::kFloatTable);
}
template <>
const Table<bfloat16>& table(Level level) {
  return of_level(level, baseline::kBfloat16Table, avx2::kBfloat16Table, avx512::kBfloat16Table);
}
template <>
const Table<float16>& table(Level level) {
  return of_level(level, baseline::kFloat16Table, avx2::kFloat16Table, avx512::kFloat16Table);
}
template <>
const Table<double>& table(Level level) {
  return of_level(level, baseline::kDoubleTable, avx2::kDoubleTable, avx512::kDoubleTable);
}
const FlatTable& flat_table(Level level) {
  return of_level(level, baseline::kFlatTable, avx2::kFlatTable, avx512::kFlatTable);
}

template <>
const Table<float>& table() {
  const CudaLibrary* device = current_device();
  return device != nullptr ? *device->f32 : table<float>(level());
}
template <>
const Table<bfloat16>& table() {
  const CudaLibrary* device = current_device();
  return device != nullptr ? *device->bf16 : table<bfloat16>(level());
}
template <>
const Table<float16>& table() {
  const CudaLibrary* device = current_device();
  return device != nullptr ? *device->f16 : table<float16>(level());
}
template <>
const Table<double>& table() {
  TRIREME_CHECK(current_device() == nullptr, "devices have no kernels in double");
  return table<double>(level());
}
const FlatTable& flat_table() {
  if (const CudaLibrary* device = current_device()) return *device->flat;
  return flat_table(level());
}

bool cpu_is_fast_at_bf16() {
  return __builtin_cpu_supports("avx512bf16");
}

}  // namespace trireme::kernels
