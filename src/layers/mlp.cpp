#include "layers/mlp.h"

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme {
namespace {

void activate(const MlpKind& kind, const Tensor& wide, const Tensor& activated) {
  dispatch(wide.dtype, [&]<class T>(T) {
    const auto& table = kernels::table<T>();
    if (kind.gated) {
      table.glu_forward(kind.activation, activated.sizes[0], activated.sizes[1], wide.as<T>(), activated.as<T>());
    } else {
      table.activation_forward(kind.activation, activated.numel(), wide.as<T>(), activated.as<T>());
    }
  });
}

// activated holds its own gradient and becomes what it was in the forward.
void activate_backward(const MlpKind& kind, const Tensor& wide, const Tensor& activated, const Tensor& dwide) {
  dispatch(wide.dtype, [&]<class T>(T) {
    const auto& table = kernels::table<T>();
    T* values = activated.as<T>();
    if (kind.gated) {
      table.glu_backward(kind.activation, activated.sizes[0], activated.sizes[1], wide.as<T>(), values, dwide.as<T>(),
                         values);
    } else {
      table.activation_backward(kind.activation, activated.numel(), wide.as<T>(), values, dwide.as<T>(), values);
    }
  });
}

}  // namespace

void mlp_forward(const MlpKind& kind, const Tensor& x, const MlpWeights& w, const Tensor& wide, const Tensor& activated,
                 const Tensor& y, const Tensor& addend) {
  linear_forward(x, w.up, wide);
  activate(kind, wide, activated);
  linear_forward(activated, w.down, y, addend);
}

void mlp_backward(const MlpKind& kind, const MlpWeights& w, const Tensor& wide, const Tensor& dy,
                  const Tensor& activated, const Tensor& dwide, const Tensor& dx, const LinearGradients& ddown) {
  linear_backward_input(dy, w.down, activated);
  activate_backward(kind, wide, activated, dwide);
  linear_backward_weight(dy, activated, w.down, ddown);
  linear_backward_input(dwide, w.up, dx);
}

}  // namespace trireme
