#include "chain/forward.h"

#include <algorithm>

namespace trireme {
namespace {

std::int64_t largest_boundary(const Chain& chain, const BatchShape& shape) {
  std::int64_t bytes = 0;
  for (std::size_t u = 0; u + 1 < chain.units.size(); ++u) {
    bytes = std::max(bytes, boundary_bytes(chain.units[u]->output(shape)));
  }
  return (bytes + 255) / 256 * 256;
}

std::int64_t whole_lines(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

SequenceCache::SequenceCache(const Chain& chain, std::int64_t tokens, std::byte* memory) {
  for (const auto& unit : chain.units) {
    places_.push_back(memory);
    memory += whole_lines(unit->cache_bytes(tokens));
  }
}

std::int64_t cache_bytes(const Chain& chain, std::int64_t tokens) {
  std::int64_t bytes = 0;
  for (const auto& unit : chain.units) bytes += whole_lines(unit->cache_bytes(tokens));
  return bytes;
}

std::vector<std::byte*> places_in(const Chain& chain, std::span<const SequenceCache* const> caches) {
  std::vector<std::byte*> places;
  for (std::size_t u = 0; u < chain.units.size(); ++u) {
    for (const SequenceCache* cache : caches) places.push_back(cache->of_unit(u));
  }
  return places;
}

std::int64_t forward_bytes(const Chain& chain, const BatchShape& shape) {
  std::int64_t workspace = chain.units.back()->describe(Phase::backward, shape).workspace_bytes;  // the loss
  for (const auto& unit : chain.units) {
    const UnitCost cost = unit->describe(Phase::forward, shape);
    workspace = std::max(workspace, cost.workspace_bytes + cost.saved_bytes);
  }
  return 2 * largest_boundary(chain, shape) + workspace;
}

HeadInput forward_to_head(const Chain& chain, const Batch& batch, std::span<const std::vector<Tensor>> parameters,
                          std::byte* memory) {
  return forward_to_head(
      chain, batch, [&](std::size_t unit) { return parameters[unit]; }, memory);
}

HeadInput forward_to_head(const Chain& chain, const Batch& batch, const ParametersOf& parameters_of,
                          std::byte* memory) {
  const std::int64_t boundary = largest_boundary(chain, batch.shape);
  for (const auto& unit : chain.units) unit->check(batch.on_host());
  HeadInput result;
  result.workspace = memory + 2 * boundary;
  for (std::size_t u = 0; u + 1 < chain.units.size(); ++u) {
    std::byte* place = memory + static_cast<std::int64_t>(u % 2) * boundary;
    std::vector<Tensor> output = boundary_views(chain.units[u]->output(batch.shape), place);
    std::byte* const* caches =
        batch.caches == nullptr ? nullptr : batch.caches + static_cast<std::int64_t>(u) * batch.shape.batch;
    const std::vector<Tensor> parameters = parameters_of(u);
    chain.units[u]->forward({batch, parameters, result.boundary, output, nullptr, result.workspace, caches});
    result.boundary = std::move(output);
  }
  return result;
}

}  // namespace trireme
