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

void activate_backward(const MlpKind& kind, const Tensor& wide, const Tensor& dactivated, const Tensor& dwide) {
  dispatch(wide.dtype, [&]<class T>(T) {
    const auto& table = kernels::table<T>();
    if (kind.gated) {
      table.glu_backward(kind.activation, dactivated.sizes[0], dactivated.sizes[1], wide.as<T>(), dactivated.as<T>(),
                         dwide.as<T>());
    } else {
      table.activation_backward(kind.activation, dactivated.numel(), wide.as<T>(), dactivated.as<T>(), dwide.as<T>());
    }
  });
}

}  // namespace

void mlp_forward(const MlpKind& kind, const Tensor& x, const MlpWeights& w, const Tensor& wide, const Tensor& activated,
                 const Tensor& y, bool add) {
  linear_forward(x, w.up, wide);
  activate(kind, wide, activated);
  linear_forward(activated, w.down, y, add);
}

void mlp_backward(const MlpKind& kind, const Tensor& x, const MlpWeights& w, const Tensor& wide, const Tensor& dy,
                  const Tensor& activated, const Tensor& dwide, const Tensor& dx, const MlpGradients& gradients) {
  activate(kind, wide, activated);
  linear_backward_weight(dy, activated, w.down, gradients.down);
  const Tensor& dactivated = activated;  // no longer needed itself
  linear_backward_input(dy, w.down, dactivated);
  activate_backward(kind, wide, dactivated, dwide);
  linear_backward_weight(dwide, x, w.up, gradients.up);
  linear_backward_input(dwide, w.up, dx);
}

}  // namespace trireme
