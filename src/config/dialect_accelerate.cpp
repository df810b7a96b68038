// accelerate's YAML, by the keys of its release 1.15 (commands/config/config_args.py).
#include "config/dialects.h"

namespace trireme::config {

const Dialect& accelerate_dialect() {
  static const Dialect dialect{
      .tool = "accelerate", .keys = {{.name = "mixed_precision", .key = "training.mixed_precision"}}, .rules = {}};
  return dialect;
}

}  // namespace trireme::config
