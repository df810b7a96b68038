#include "chain/unit.h"

#include <algorithm>

#include "base/random.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(const Unit& unit, const char* what) {
  throw Error(1000, "unit " + unit.name(), std::string("has no ") + what,
              "this is a defect of Trireme; please report it with the command that led here");
}

}  // namespace

std::uint64_t dropout_key(std::uint64_t seed, std::int64_t step, std::uint64_t sample) {
  const std::uint64_t of_step = random_u64(seed, stream_id("dropout/step"), static_cast<std::uint64_t>(step));
  return random_u64(of_step, stream_id("dropout/sample"), sample);
}

std::int64_t boundary_bytes(const BoundarySpec& spec) {
  std::int64_t bytes = 0;
  for (const BoundaryTensor& tensor : spec) {
    std::int64_t size = size_of(tensor.dtype);
    for (const std::int64_t length : tensor.sizes) size *= length;
    bytes += (size + 255) / 256 * 256;
  }
  return bytes;
}

std::int64_t Unit::cache_bytes(std::int64_t) const {
  return 0;
}
void Unit::check(const Batch&) const {}
void Unit::forward(const ForwardArguments&) const {
  refuse(*this, "forward: the head runs by loss()");
}
void Unit::backward(const BackwardArguments&) const {
  refuse(*this, "backward: the head runs by loss()");
}
void Unit::loss(const LossArguments&) const {
  refuse(*this, "loss: only the head has one");
}
void Unit::logits(const ForwardArguments&, std::span<const std::int64_t>, float*) const {
  refuse(*this, "logits: only the head has them");
}

std::int64_t count_labels(const Batch& batch) {
  const std::int32_t* labels = batch.on_host().labels;
  return std::count_if(labels, labels + batch.shape.tokens(), [](std::int32_t label) { return label >= 0; });
}

LossResult loss_of(const Unit& head, LossArguments arguments) {
  LossResult result{.weight = count_labels(arguments.batch)};
  arguments.sum = &result.sum;
  head.loss(arguments);
  return result;
}

}  // namespace trireme
