// A unit computes one link of the chain: forward and an explicit backward. It owns no storage: parameters, gradient
// places, boundaries, saved bytes and workspace are handed to it as views that are valid for the call only.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chain/tensor.h"
#include "kernels/products.h"
#include "layout/parameter.h"

namespace trireme {

// The shape of one micro-batch.
struct BatchShape {
  std::int64_t batch = 1;     // B
  std::int64_t sequence = 1;  // T
  // Generation: tokens that any row's sequence may have before these T, kept in caches. Sizes memory.
  std::int64_t past = 0;
  std::int64_t tokens() const { return batch * sequence; }
};

// One micro-batch's side inputs, which reach every unit. All are [B, T] int32 but those that say otherwise, owned by
// the loader, where the units run.
struct Batch {
  BatchShape shape;
  const std::int32_t* ids = nullptr;        // 0 .. V-1
  const std::int32_t* labels = nullptr;     // next token, or -1: counts nothing
  const std::int32_t* positions = nullptr;  // for RoPE; start anew at document borders when asked
  // First place in the row's sequence that attention may reach (document border); with a past, 0 is the past's first.
  const std::int32_t* starts = nullptr;
  // [B] dropout_key() of each sample. nullptr: nothing is dropped (evaluation, generation).
  const std::uint64_t* dropout_keys = nullptr;
  // [B] generation: tokens that each row's sequence has before these, at most shape.past. nullptr: none, rows are whole
  // sequences.
  const std::int32_t* past = nullptr;
  // [U, B] with a past: what the chain's unit u keeps of row b's sequence is at caches[u * B + b].
  std::byte* const* caches = nullptr;
  // Where the arrays are a device's: the same batch in memory of the host.
  const Batch* host = nullptr;
  const Batch& on_host() const { return host == nullptr ? *this : *host; }
};

std::int64_t count_labels(const Batch& batch);  // those that count

// The place of the batch's token n in its row's sequence.
inline std::int64_t place_in_sequence(const Batch& batch, std::int64_t n) {
  const std::int64_t past = batch.past == nullptr ? 0 : batch.past[n / batch.shape.sequence];
  return past + n % batch.shape.sequence;
}

// What a sample's dropout masks are drawn from. sample: its place in the order of all samples of the run.
std::uint64_t dropout_key(std::uint64_t seed, std::int64_t step, std::uint64_t sample);

// What passes from a unit to the next: a short list of tensors of static shape.
struct BoundaryTensor {
  std::string name;  // "hidden"
  DType dtype;
  std::vector<std::int64_t> sizes;
};
using BoundarySpec = std::vector<BoundaryTensor>;
std::int64_t boundary_bytes(const BoundarySpec& spec);  // each tensor at a multiple of 256 bytes
std::vector<Tensor> boundary_views(const BoundarySpec& spec, std::byte* data);  // data holds boundary_bytes(spec)

enum class Phase : std::uint8_t { forward, backward };

// What a unit needs and costs, known without running. Bytes per micro-batch.
struct UnitCost {
  std::int64_t saved_bytes = 0;      // written by forward, read by backward
  std::int64_t workspace_bytes = 0;  // of this phase; a forward that keeps nothing takes saved_bytes more
  std::int64_t library_bytes = 0;    // that matrix products of this phase take beside it, at most; an estimate
  double flops = 0;                  // multiply and add count two
  double attention_flops = 0;        // among them; the others are matrix products
  std::int64_t smallest_side = 0;    // of those products' m, n and k
  double bytes_moved = 0;
  bool reads_input = true;  // backward: reads the input boundary besides the saved bytes
};

struct GradientPlace {
  Tensor tensor;     // compute dtype or, where ParameterSpec::float_gradient, fp32; shaped as the parameter's storage
                     // matrix; no data: the parameter is frozen, and nothing is computed for it
  bool add = false;  // add to it instead of overwriting
  bool is_wanted() const { return tensor.data != nullptr; }
};

struct ForwardArguments {
  const Batch& batch;
  std::span<const Tensor> parameters;  // in the order of Unit::parameters()
  std::span<const Tensor> input;       // the boundary before; empty for the first unit
  std::span<const Tensor> output;      // written
  std::byte* saved = nullptr;          // nullptr: nothing is kept; workspace has saved_bytes more
  std::byte* workspace = nullptr;
  // [B] with batch.past only: what this unit keeps of each row's sequence. Read, and gets the new tokens' part.
  std::byte* const* caches = nullptr;
};

struct BackwardArguments {
  const Batch& batch;
  std::span<const Tensor> parameters;
  std::span<const Tensor> input;
  std::span<const Tensor> grad_output;
  std::span<const Tensor> grad_input;        // written; empty for the first unit
  std::span<const GradientPlace> gradients;  // in the order of Unit::parameters()
  const std::byte* saved = nullptr;
  std::byte* workspace = nullptr;
};

// The head: forward, loss and backward in one, chunk by chunk, so that whole logits never exist.
struct LossArguments {
  const Batch& batch;
  std::span<const Tensor> parameters;
  std::span<const Tensor> input;
  std::span<const Tensor> grad_input;        // written; empty in evaluation
  std::span<const GradientPlace> gradients;  // empty in evaluation: no gradients are made
  double grad_scale = 1;                     // 1 / valid tokens of the global batch
  std::byte* workspace = nullptr;
  double* sum = nullptr;  // written: of the losses over the micro-batch's valid labels, nats
};
struct LossResult {
  double sum = 0;
  std::int64_t weight = 0;  // count_labels()
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual const std::string& name() const = 0;
  virtual const std::vector<int>& parameters() const = 0;          // indices into the model's parameter list
  virtual BoundarySpec output(const BatchShape& shape) const = 0;  // empty for the head
  virtual UnitCost describe(Phase phase, const BatchShape& shape) const = 0;
  // The matrix products of forward and backward, those of the head's loss().
  virtual std::vector<kernels::Product> products(const BatchShape&) const { return {}; }
  // Bytes that this unit keeps of a sequence of so many tokens for those that follow (keys and values): a prefix of
  // what it keeps of a longer one.
  virtual std::int64_t cache_bytes(std::int64_t tokens) const;
  // Throws Error TR1202 to TR1205 for what would be an index outside some buffer. The others trust a batch that passed.
  virtual void check(const Batch& batch) const;
  virtual void forward(const ForwardArguments& arguments) const;    // not the head's; throws there
  virtual void backward(const BackwardArguments& arguments) const;  // not the head's
  virtual void loss(const LossArguments& arguments) const;          // the head's only
  // The head's logits of one position of each row of the batch: [B, V] float. Generation.
  virtual void logits(const ForwardArguments& arguments, std::span<const std::int64_t> positions, float* out) const;
};

// The head's loss on the CPU, with the labels counted; arguments.sum is not used.
LossResult loss_of(const Unit& head, LossArguments arguments);

}  // namespace trireme
