#include "engine/snapshot.h"

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme::engine {

Snapshot::Snapshot(const ModelState& state, std::int64_t step, std::atomic<int>& readers)
    : state_(&state), step_(step), hold_(&readers) {
  ++readers;
}

void Snapshot::Release::operator()(std::atomic<int>* readers) const {
  readers->fetch_sub(1, std::memory_order_release);  // after the last read
}

Range Snapshot::held(StateKind kind, int group) const {
  const bool is_copied = state_->snapshot(kind, group) != nullptr;
  return is_copied ? state_->slice_of(group) : state_->held(kind, group);
}

std::span<const float> Snapshot::read(StateKind kind, int group, std::vector<float>& storage) const {
  const std::byte* copied = state_->snapshot(kind, group);
  if (copied == nullptr) return state_->read(kind, group, storage);
  const auto numel = static_cast<std::size_t>(held(kind, group).size());
  return dispatch(state_->dtype_of(kind, group), [&]<class T>(T) -> std::span<const float> {
    const auto* values = reinterpret_cast<const T*>(copied);
    if constexpr (std::is_same_v<T, float>) return {values, numel};
    storage.resize(numel);
    kernels::table<T>().cast_to_float(static_cast<std::int64_t>(numel), values, storage.data());
    return storage;
  });
}

}  // namespace trireme::engine
