#include "chain/chain.h"

namespace trireme {

std::int64_t Chain::num_parameters() const {
  std::int64_t total = 0;
  for (const ParameterSpec& parameter : parameters) {
    for (const LogicalTensor& tensor : parameter.logical) total += tensor.box.numel();
  }
  return total;
}

}  // namespace trireme
