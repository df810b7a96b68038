// The element-wise functions of feed-forward networks.
#pragma once
#include <cstdint>

namespace trireme {

enum class Activation : std::uint8_t {
  silu,       // x * sigmoid(x)
  gelu_tanh,  // the tanh approximation: Hugging Face's gelu_new, gelu_pytorch_tanh
  gelu,       // by the error function
  relu,
};

}  // namespace trireme
