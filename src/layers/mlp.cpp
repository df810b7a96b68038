#include "layers/mlp.h"

#include "kernels/kernels.h"
#include "layers/dispatch.h"
#include "layers/linear.h"

namespace trireme {
namespace {

void activate(const Tensor& gate_up, const Tensor& activated) {
  dispatch(gate_up.dtype, [&]<class T>(T) {
    kernels::table<T>().swiglu_forward(activated.sizes[0], activated.sizes[1], gate_up.as<T>(), activated.as<T>());
  });
}

}  // namespace

void mlp_forward(const Tensor& x, const MlpWeights& w, const Tensor& gate_up, const Tensor& activated,
                 const Tensor& y) {
  linear_forward(x, w.gate_up, gate_up);
  activate(gate_up, activated);
  linear_forward(activated, w.down, y, true);
}

void mlp_backward(const Tensor& x, const MlpWeights& w, const Tensor& gate_up, const Tensor& dy,
                  const Tensor& activated, const Tensor& dgate_up, const Tensor& dx, const GradientPlace& dw_gate_up,
                  const GradientPlace& dw_down) {
  activate(gate_up, activated);
  linear_backward_weight(dy, activated, dw_down);
  const Tensor& dactivated = activated;  // no longer needed itself
  linear_backward_input(dy, w.down, dactivated);
  dispatch(dy.dtype, [&]<class T>(T) {
    kernels::table<T>().swiglu_backward(dactivated.sizes[0], dactivated.sizes[1], gate_up.as<T>(), dactivated.as<T>(),
                                        dgate_up.as<T>());
  });
  linear_backward_weight(dgate_up, x, dw_gate_up);
  linear_backward_input(dgate_up, w.gate_up, dx);
}

}  // namespace trireme
