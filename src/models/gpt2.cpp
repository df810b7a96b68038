#include "models/gpt2.h"

#include "base/error.h"

namespace trireme {

Chain make_gpt2(const Gpt2Config&, DType) {
  throw Error(1201, "model.family", "gpt2 is not built yet");
}

}  // namespace trireme
