#include "engine/batch_arrays.h"

#include <algorithm>
#include <cstring>

#include "kernels/device.h"

namespace trireme::engine {
namespace {

template <class T>
std::int64_t bytes_of(std::int64_t count) {
  return (count * static_cast<std::int64_t>(sizeof(T)) + 255) / 256 * 256;
}

}  // namespace

BatchArrays::BatchArrays(const BatchShape& shape, std::int64_t count, std::int64_t units, MemoryKind kind)
    : bytes_(4 * bytes_of<std::int32_t>(shape.tokens()) + bytes_of<std::uint64_t>(shape.batch)), units_(units) {
  if (units > 0) bytes_ += bytes_of<std::int32_t>(shape.batch) + bytes_of<std::byte*>(units * shape.batch);
  arrays_ = Memory(count * bytes_, kind);
  on_host_ = Memory(count * bytes_, kind == MemoryKind::device ? MemoryKind::pinned : MemoryKind::host);
}

Batch BatchArrays::upload(const Batch& batch, std::size_t number) const {
  Batch there = batch;
  there.host = &batch;
  const std::int64_t first = static_cast<std::int64_t>(number) * bytes_;
  std::int64_t offset = first;
  const auto place = [&]<class T>(const T*& array, std::int64_t count) {
    if (array != nullptr) {
      std::memcpy(on_host_.at(offset), array, static_cast<std::size_t>(count) * sizeof(T));
      array = reinterpret_cast<const T*>(arrays_.at(offset));
    }
    offset += bytes_of<T>(count);
  };
  const std::int64_t B = batch.shape.batch, N = batch.shape.tokens();
  place(there.ids, N);
  place(there.labels, N);
  place(there.positions, N);
  const auto is_zero = [](std::int32_t start) { return start == 0; };
  if (arrays_.kind() == MemoryKind::device && std::all_of(batch.starts, batch.starts + N, is_zero)) {
    there.starts = nullptr;  // which devices take for that, and have faster kernels for
  }
  place(there.starts, N);
  place(there.dropout_keys, B);
  if (units_ > 0) {
    place(there.past, B);
    place(there.caches, units_ * B);
  }
  kernels::copy(arrays_.at(first), on_host_.at(first), offset - first);
  return there;
}

}  // namespace trireme::engine
