// The side inputs of batches, where the units run: what the loader has on the host is copied there.
#pragma once
#include "chain/unit.h"
#include "engine/memory.h"

namespace trireme::engine {

class BatchArrays {
 public:
  BatchArrays() = default;
  // For `count` batches of at most this shape, in memory of this kind; units: of a chain whose batches have a past, 0:
  // they have none.
  BatchArrays(const BatchShape& shape, std::int64_t count, std::int64_t units, MemoryKind kind);
  // Copies the batch's arrays to place `number` of those, as soon as the calling thread's stream comes to it: what was
  // copied from there before must have arrived. The result refers to `batch`, and holds until the place's next batch.
  Batch upload(const Batch& batch, std::size_t number) const;

 private:
  std::int64_t bytes_ = 0;  // of a batch
  std::int64_t units_ = 0;
  Memory arrays_, on_host_;
};

}  // namespace trireme::engine
