// Runs a chain in fp32 on one micro-batch: logits of every position, and the gradients of all parameters.
#pragma once
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "chain/forward.h"

namespace trireme::testing {

// Rows of ids from position 0 on; each token's label is the next.
class Micro {
 public:
  Micro(std::vector<std::int32_t> ids, BatchShape shape)
      : shape_(shape), ids_(std::move(ids)), labels_(ids_.size(), -1), positions_(ids_.size()), starts_(ids_.size()) {
    for (std::int64_t n = 0; n < shape.tokens(); ++n) {
      positions_[n] = static_cast<std::int32_t>(n % shape.sequence);
      if (positions_[n] + 1 < shape.sequence) labels_[n] = ids_[n + 1];
    }
  }
  Batch batch() const { return {shape_, ids_.data(), labels_.data(), positions_.data(), starts_.data()}; }

 private:
  BatchShape shape_;
  std::vector<std::int32_t> ids_, labels_, positions_, starts_;
};

class ChainRun {
 public:
  explicit ChainRun(const Chain& chain) : chain_(chain) {
    for (const ParameterSpec& spec : chain.parameters) {
      parameters_.emplace_back(spec.numel());
      gradients_.emplace_back(spec.numel());
    }
    for (const auto& unit : chain.units) {
      views_.emplace_back();
      for (const int p : unit->parameters()) views_.back().push_back(view(parameters_[p], p));
    }
  }
  float* parameter(std::size_t p) { return parameters_[p].data(); }
  const float* gradient(std::size_t p) const { return gradients_[p].data(); }

  // [B, T, V]
  std::vector<float> logits(const Micro& micro) {
    const Batch batch = micro.batch();
    std::vector<std::byte> memory(forward_bytes(chain_, batch.shape));
    const HeadInput head = forward_to_head(chain_, batch, views_, memory.data());
    const std::int64_t B = batch.shape.batch, T = batch.shape.sequence, V = chain_.vocabulary;
    std::vector<float> all(B * T * V), some(B * V);
    for (std::int64_t t = 0; t < T; ++t) {
      const std::vector<std::int64_t> positions(B, t);
      chain_.units.back()->logits({batch, views_.back(), head.boundary, {}, nullptr, head.workspace}, positions,
                                  some.data());
      for (std::int64_t b = 0; b < B; ++b) std::copy_n(&some[b * V], V, &all[(b * T + t) * V]);
    }
    return all;
  }

  // The same of two rows whose tokens come one at a time after the first `first` ones, row 1's `lag` behind: [B, T, V],
  // zero where a whole part went through at once.
  std::vector<float> cached_logits(const std::vector<std::int32_t>& ids, std::int64_t first, std::int64_t lag) {
    const std::int64_t T = std::ssize(ids) / 2, V = chain_.vocabulary;
    std::vector<float> all(2 * T * V), some(2 * V);
    std::vector<std::byte> memory[2], work(forward_bytes(chain_, {2, T, T}));
    std::vector<SequenceCache> caches;
    for (auto& bytes : memory) {
      bytes.resize(cache_bytes(chain_, T));
      caches.emplace_back(chain_, T, bytes.data());
    }
    const auto pass = [&](std::vector<int> rows, std::vector<std::int32_t> past, std::int64_t count) {
      std::vector<std::int32_t> new_ids, positions, labels(rows.size() * count, -1), starts(labels.size(), 0);
      std::vector<const SequenceCache*> of_rows;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        of_rows.push_back(&caches[rows[r]]);
        for (std::int64_t t = 0; t < count; ++t) {
          positions.push_back(past[r] + static_cast<std::int32_t>(t));
          new_ids.push_back(ids[rows[r] * T + positions.back()]);
        }
      }
      Batch batch{{std::ssize(rows), count, T - count}, new_ids.data(), labels.data(), positions.data(), starts.data()};
      batch.past = past.data();
      const std::vector<std::byte*> places = places_in(chain_, of_rows);
      batch.caches = places.data();
      const HeadInput head = forward_to_head(chain_, batch, views_, work.data());
      const std::vector<std::int64_t> last(rows.size(), count - 1);
      chain_.units.back()->logits({batch, views_.back(), head.boundary, {}, nullptr, head.workspace}, last,
                                  some.data());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::copy_n(&some[r * V], V, &all[(rows[r] * T + past[r] + count - 1) * V]);
      }
    };
    pass({0}, {0}, first);
    pass({1}, {0}, first - lag - 3);
    pass({1}, {static_cast<std::int32_t>(first - lag - 3)}, 3);  // a prompt in two parts
    for (auto t = static_cast<std::int32_t>(first); t < T; ++t) {
      pass({0, 1}, {t, t - static_cast<std::int32_t>(lag)}, 1);
    }
    return all;
  }

  // Forward, loss and backward; the sum of the losses, whose gradients stay in gradient().
  double train(const Micro& micro) {
    const Batch batch = micro.batch();
    const std::size_t last = chain_.units.size() - 1;
    std::vector<std::vector<std::byte>> saved(last), outputs(last), grads(last);
    std::vector<std::vector<Tensor>> hidden(last), dhidden(last);
    for (std::size_t u = 0; u < last; ++u) {
      const Unit& unit = *chain_.units[u];
      const BoundarySpec spec = unit.output(batch.shape);
      outputs[u].resize(boundary_bytes(spec)), grads[u].resize(boundary_bytes(spec));
      hidden[u] = boundary_views(spec, outputs[u].data()), dhidden[u] = boundary_views(spec, grads[u].data());
      const UnitCost cost = unit.describe(Phase::forward, batch.shape);
      saved[u].resize(cost.saved_bytes);
      std::vector<std::byte> workspace(cost.workspace_bytes);
      unit.forward({batch, views_[u], u == 0 ? none_ : hidden[u - 1], hidden[u], saved[u].data(), workspace.data()});
    }
    used_.assign(chain_.parameters.size(), false);
    std::vector<std::byte> workspace = backward_workspace(last, batch.shape);
    const LossResult loss = loss_of(*chain_.units[last], {batch, views_[last], hidden[last - 1], dhidden[last - 1],
                                                          places_of(last), 1.0, workspace.data()});
    for (std::size_t u = last; u-- > 0;) {
      workspace = backward_workspace(u, batch.shape);
      chain_.units[u]->backward({batch, views_[u], u == 0 ? none_ : hidden[u - 1], dhidden[u],
                                 u == 0 ? none_ : dhidden[u - 1], places_of(u), saved[u].data(), workspace.data()});
    }
    return loss.sum;
  }

 private:
  Tensor view(std::vector<float>& storage, int p) const {
    return {storage.data(), DType::f32, {chain_.parameters[p].rows, chain_.parameters[p].columns}};
  }
  std::vector<std::byte> backward_workspace(std::size_t u, const BatchShape& shape) const {
    return std::vector<std::byte>(chain_.units[u]->describe(Phase::backward, shape).workspace_bytes);
  }
  const std::vector<GradientPlace>& places_of(std::size_t u) {
    places_.clear();
    for (const int p : chain_.units[u]->parameters()) {
      places_.push_back({view(gradients_[p], p), used_[p]});
      used_[p] = true;
    }
    return places_;
  }

  const Chain& chain_;
  const std::vector<Tensor> none_;
  std::vector<std::vector<float>> parameters_, gradients_;
  std::vector<std::vector<Tensor>> views_;
  std::vector<GradientPlace> places_;
  std::vector<bool> used_;
};

}  // namespace trireme::testing
