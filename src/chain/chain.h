// A model: its parameters, its units in order, and facts that others ask for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "chain/unit.h"

namespace trireme {

struct Chain {
  std::vector<ParameterSpec> parameters;
  std::vector<std::unique_ptr<Unit>> units;  // forward order; the last is the head
  DType compute_dtype = DType::f32;
  std::int64_t vocabulary = 0;  // logical V: ids are below it
  std::int64_t max_positions = 0;
  // A sequence that reaches one of these positions is computed otherwise from its first on (longrope's second set of
  // frequencies): what units kept of it is void then, and rows on both sides do not go into one batch.
  std::vector<std::int64_t> position_borders;
  std::int64_t table_bytes = 0;         // that units share and keep, whatever the batch
  std::int64_t num_parameters() const;  // logical elements, tied ones once
};

}  // namespace trireme
