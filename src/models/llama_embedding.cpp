#include "layers/embedding.h"
#include "models/llama_units.h"

namespace trireme {
namespace {

std::string place_of(const Batch& batch, std::int64_t n) {
  return "batch row " + std::to_string(n / batch.shape.sequence) + ", position " +
         std::to_string(n % batch.shape.sequence);
}

// Out of range, any of these would be an index outside some buffer.
void check_inputs(const Batch& batch, const LlamaConfig& config) {
  for (std::int64_t n = 0; n < batch.shape.tokens(); ++n) {
    if (batch.ids[n] < 0 || batch.ids[n] >= config.vocabulary) {
      throw Error(
          1202, place_of(batch, n),
          "token id " + std::to_string(batch.ids[n]) + " is outside 0 .. " + std::to_string(config.vocabulary - 1),
          "the data must be tokenized with the model's own tokenizer");
    }
    if (batch.positions[n] < 0 || batch.positions[n] >= config.max_positions) {
      throw Error(1203, place_of(batch, n),
                  "position " + std::to_string(batch.positions[n]) + " is outside 0 .. " +
                      std::to_string(config.max_positions - 1),
                  "shorten the sequences or raise the model's maximum of positions");
    }
    if (batch.starts[n] < 0 || batch.starts[n] > n % batch.shape.sequence) {
      throw Error(1204, place_of(batch, n),
                  "document start " + std::to_string(batch.starts[n]) + " is not at or before the position");
    }
  }
}

}  // namespace

UnitCost LlamaEmbedding::describe(Phase phase, const BatchShape& shape) const {
  const double output = static_cast<double>(boundary_bytes(this->output(shape)));
  UnitCost cost;
  cost.reads_input = false;
  cost.bytes_moved = 2 * output;
  if (phase == Phase::backward) {
    MemoryLayout memory;
    memory.place(DType::u8,
                 {embedding_workspace_bytes(shape.tokens(), facts_.padded_vocabulary, facts_.config.hidden_size)});
    cost.workspace_bytes = memory.size();
    cost.bytes_moved =
        output + static_cast<double>(facts_.padded_vocabulary * facts_.config.hidden_size * size_of(facts_.dtype));
  }
  return cost;
}

void LlamaEmbedding::forward(const ForwardArguments& arguments) const {
  const Batch& batch = arguments.batch;
  check_inputs(batch, facts_.config);
  embedding_forward(batch.ids, arguments.parameters[0],
                    as_matrix(arguments.output[0], batch.shape.tokens(), facts_.config.hidden_size));
}

void LlamaEmbedding::backward(const BackwardArguments& arguments) const {
  const std::int64_t N = arguments.batch.shape.tokens(), C = facts_.config.hidden_size;
  const Tensor workspace(arguments.workspace, DType::u8, {embedding_workspace_bytes(N, facts_.padded_vocabulary, C)});
  embedding_backward(arguments.batch.ids, as_matrix(arguments.grad_output[0], N, C), arguments.gradients[0], workspace);
}

}  // namespace trireme
