// The Trainer's evaluation: loss and bits per byte on the held-out split.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/log.h"
#include "comm/collectives.h"
#include "train/trainer.h"

namespace trireme::train {

namespace {

// Rows of one batch and their memory.
struct EvaluationBatch {
  EvaluationBatch(std::int64_t batch, std::int64_t sequence)
      : shape{batch, sequence}, memory(static_cast<std::size_t>(4 * batch * sequence)) {}

  std::int32_t* rows(int which) { return memory.data() + which * shape.tokens(); }

  // Samples first, first + 1, ...; rows beyond `end` count nothing.
  Batch read(const data::Dataset& dataset, std::uint64_t first, std::uint64_t end) {
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const std::int64_t at = b * shape.sequence;
      const std::uint64_t sample = std::min(first + static_cast<std::uint64_t>(b), end - 1);
      dataset.read(sample, {rows(0) + at, rows(1) + at, rows(2) + at, rows(3) + at});
      if (first + static_cast<std::uint64_t>(b) >= end) std::fill_n(rows(1) + at, shape.sequence, -1);
    }
    return {shape, rows(0), rows(1), rows(2), rows(3)};
  }

  BatchShape shape;
  std::vector<std::int32_t> memory;
};

struct BatchLoss {
  double nats = 0;
  std::int64_t tokens = 0;
};

}  // namespace

void Trainer::evaluate() {
  if (held_out_ == nullptr || evaluated_step_ == step_) return;
  evaluated_step_ = step_;
  engine_->drain();
  const std::uint64_t whole = held_out_->num_samples();
  const std::uint64_t wanted = std::min(
      whole, static_cast<std::uint64_t>(plan_.training.eval_samples.value_or(static_cast<std::int64_t>(whole))));
  const auto batch_size = static_cast<std::uint64_t>(run_.engine.micro_batch.batch);
  const std::uint64_t num_batches = (wanted + batch_size - 1) / batch_size;
  const auto ranks = static_cast<std::uint64_t>(comm_.world_size());
  const std::uint64_t rounds = (num_batches + ranks - 1) / ranks;

  EvaluationBatch memory(run_.engine.micro_batch.batch, plan_.data.sequence_length);
  std::vector<BatchLoss> own(rounds);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t batch = round * ranks + static_cast<std::uint64_t>(comm_.rank());
    if (batch >= num_batches) {
      if (engine_->is_sharded()) engine_->evaluate(nullptr);
      continue;
    }
    const Batch rows = memory.read(*held_out_, batch * batch_size, wanted);
    const LossResult loss = engine_->evaluate(&rows);
    own[round] = {loss.sum, loss.weight};
  }
  const std::vector<BatchLoss> all = comm::gathered(comm_, own);
  BatchLoss total;  // in batch order, so that the figure does not depend on the ranks
  for (std::uint64_t batch = 0; batch < num_batches; ++batch) {
    const BatchLoss& loss = all[(batch % ranks) * rounds + batch / ranks];
    total.nats += loss.nats;
    total.tokens += loss.tokens;
  }
  if (total.tokens == 0) return;
  nlohmann::json event{{"event", "eval"},
                       {"step", step_},
                       {"loss", total.nats / static_cast<double>(total.tokens)},
                       {"nats", total.nats},
                       {"tokens", total.tokens}};
  std::string line = fmt::format("held-out text after step {}: loss {:.4f}", step_, event["loss"].get<double>());
  if (wanted == whole && held_out_->num_bytes() > 0) {
    const double bits_per_byte = total.nats / std::numbers::ln2 / static_cast<double>(held_out_->num_bytes());
    event["bytes"] = held_out_->num_bytes();
    event["bits_per_byte"] = bits_per_byte;
    line += fmt::format(", {:.3f} bits per byte", bits_per_byte);
  }
  if (is_first_rank()) log::info(line);
  emit(event);
}

}  // namespace trireme::train
