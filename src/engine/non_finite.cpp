#include "engine/non_finite.h"

#include <cmath>

#include "base/error.h"
#include "engine/gradient_sum.h"
#include "kernels/device.h"

namespace trireme::engine {

std::string to_string(const NonFinite& found) {
  std::string text = found.tensor.empty() ? "the gradient norm is not finite"
                                          : "the gradient of " + found.tensor + " is not finite (found by rank " +
                                                std::to_string(found.rank) + ")";
  if (found.micro_batch >= 0) {
    text += ", nor is the loss of micro-batch " + std::to_string(found.micro_batch) + " (on rank " +
            std::to_string(found.micro_batch_rank) + ")";
  }
  return text;
}

std::int64_t first_non_finite(const Chain& chain, const std::vector<StorageGroup>& groups, const ModelState& state) {
  std::vector<std::int64_t> first_logical;  // of each parameter
  std::int64_t count = 0;
  for (const ParameterSpec& parameter : chain.parameters) {
    first_logical.push_back(count);
    count += std::ssize(parameter.logical);
  }
  std::int64_t first = count;
  std::vector<std::byte> storage;
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    if (!groups[g].trainable) continue;
    const Range range = state.updated(g);
    const std::byte* sums = state.read_sums(g, storage);
    for (const Piece& piece : locate(groups[g], chain.parameters, range.begin, range.end)) {
      const std::int64_t index = first_logical[piece.parameter] + piece.logical;
      if (index >= first) continue;
      for (std::int64_t row = 0; row < piece.box.rows(); ++row) {
        const std::int64_t begin = piece.flat_begin - range.begin + row * piece.flat_row_stride;
        for (std::int64_t i = begin; i < begin + piece.box.columns() && index < first; ++i) {
          if (!std::isfinite(value_at(sums, state.accumulator_dtype(), i))) first = index;
        }
      }
    }
  }
  return first == count ? -1 : first;
}

const std::string& logical_name(const Chain& chain, std::int64_t index) {
  for (const ParameterSpec& parameter : chain.parameters) {
    if (index < std::ssize(parameter.logical)) return parameter.logical[static_cast<std::size_t>(index)].name;
    index -= std::ssize(parameter.logical);
  }
  fail_check("index", __FILE__, __LINE__, "no such logical tensor");
}

void spoil_last(const std::vector<GradientPlace>& gradients) {
  for (auto place = gradients.rbegin(); place != gradients.rend(); ++place) {
    const Tensor& tensor = place->tensor;
    if (tensor.data == nullptr) continue;
    static constexpr std::uint16_t kHighBits = 0x7f80;
    std::byte* end = static_cast<std::byte*>(tensor.data) + tensor.bytes();
    kernels::copy(end - sizeof kHighBits, &kHighBits, sizeof kHighBits);
    return;
  }
}

}  // namespace trireme::engine
