#include <algorithm>

#include "chain/unit.h"

namespace trireme {

std::vector<Tensor> boundary_views(const BoundarySpec& spec, std::byte* data) {
  std::vector<Tensor> views;
  for (const BoundaryTensor& tensor : spec) {
    Tensor view;
    view.data = data;
    view.dtype = tensor.dtype;
    view.num_dims = static_cast<int>(tensor.sizes.size());
    std::copy(tensor.sizes.begin(), tensor.sizes.end(), view.sizes.begin());
    data += (view.bytes() + 255) / 256 * 256;
    views.push_back(view);
  }
  return views;
}

}  // namespace trireme
