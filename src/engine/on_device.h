// What an engine has on a device, beside its plan and state: streams, the step's batches, and numbers that it hands on.
#pragma once
#include <exception>
#include <mutex>

#include "engine/batch_arrays.h"
#include "engine/device_executor.h"
#include "engine/device_ranks.h"
#include "engine/engine.h"

namespace trireme::engine {

struct Engine::OnDevice {
  std::unique_ptr<DeviceExecutor> executor;
  Memory numbers, numbers_on_host;  // Numbers, then a loss a round
  kernels::Event reported;          // they are on the host
  BatchArrays arrays;               // a round each
  std::vector<Batch> batches;
  std::mutex mutex;            // of the next
  std::exception_ptr failure;  // of what the host did in a stream's order
  Memory parts;                // of the norm: each rank's, where they are slices
  Memory arrived;              // of collectives
  // Of a rank that is not alone: all, or those of its replica and those with its slice.
  std::unique_ptr<DeviceRanks> shards, replicas;

  DeviceRanks& ranks_of(schedule::Scope scope) const {
    return scope == schedule::Scope::replicas ? *replicas : *shards;
  }
  void throw_if_failed();  // so did a peer, or the host
  void abort() const noexcept;
};

}  // namespace trireme::engine
