// A chain and its groups as the schedule knows them: sizes, costs, and what of a group lies where.
#pragma once
#include "engine/engine.h"

namespace trireme::engine {

// Every micro-batch's gradients go to the other ranks at once: where the options say so, and where each rank has one,
// of which a sum of its own would be a copy, in a wider type on the wire.
bool reduces_each_round(const EngineOptions& options);

// shards: whether the options' sharding applies, as it does not among the one rank of a replica.
schedule::ChainSpec describe_chain(const Chain& chain, const std::vector<StorageGroup>& groups,
                                   const EngineOptions& options, bool shards);

}  // namespace trireme::engine
