// FSDP's options as a JSON file, in the spelling of accelerate and transformers, with and without fsdp_.
#include "config/dialects.h"

namespace trireme::config {

const Dialect& fsdp_dialect() {
  static const Dialect dialect{
      .tool = "FSDP",
      .keys = {{.name = "fsdp_sharding_strategy", .key = "distributed.strategy", .names = {"sharding_strategy"}}},
      .rules = {}};
  return dialect;
}

}  // namespace trireme::config
