#include "schedule/build_check.h"

#include <algorithm>

#include "base/error.h"

namespace trireme::schedule {
namespace {

// Whether ranks update slices: of all trainable groups or of none.
bool is_sharded(const ChainSpec& chain) {
  return std::any_of(chain.groups.begin(), chain.groups.end(),
                     [](const GroupSpec& group) { return group.shards_optimizer; });
}

void check_sharding(const GroupSpec& spec, const Options& options, bool is_sharded) {
  const bool any = spec.shards_parameters || spec.shards_gradients || spec.shards_optimizer;
  TRIREME_CHECK(!any || options.shard_ranks() > 1, spec.name + ": sharded among one rank");
  TRIREME_CHECK(!spec.trainable || spec.shards_gradients || !spec.shards_parameters,
                spec.name + ": sharded parameters with whole gradients");
  TRIREME_CHECK(spec.shards_optimizer || !spec.shards_gradients, spec.name + ": sharded gradients, whole optimizer");
  TRIREME_CHECK(spec.shards_optimizer == (spec.trainable && is_sharded), spec.name + ": unlike the other groups");
  TRIREME_CHECK(options.replicas == 1 || is_sharded || !spec.trainable, spec.name + ": replicas of what is whole");
}

void check_sums(const GroupSpec& spec, const Options& options) {
  if (!spec.adds_in_place) return;
  TRIREME_CHECK(spec.trainable, spec.name + ": frozen, but with gradients that are added in place");
  TRIREME_CHECK(!spec.shards_gradients && (options.world_size == 1 || !options.reduce_each_micro_batch),
                spec.name + ": gradients are added in place where each round's are reduced");
}

void check_tiers(const GroupSpec& spec, const Options& options) {
  TRIREME_CHECK(options.steps_wait || options.pass == Pass::closed || !spec.state_on_host,
                spec.name + ": a step that does not wait is left to another pass");
  TRIREME_CHECK(spec.trainable || !spec.state_on_host, spec.name + ": frozen, but with state on the host");
  TRIREME_CHECK(!spec.weights_on_host || spec.state_on_host == spec.trainable,
                spec.name + ": weights on the host, state on the device");
  TRIREME_CHECK(!spec.weights_on_host || !spec.updates_slice_of_whole(),
                spec.name + ": whole weights on the host, of which slices are updated");
}

void check_inputs(const ChainSpec& chain) {
  for (std::size_t unit = 0; unit < chain.units.size(); ++unit) {
    const UnitSpec& spec = chain.units[unit];
    if (!spec.input_on_host) continue;
    TRIREME_CHECK(spec.recompute && unit > 0 && chain.units[unit - 1].output_bytes > 0,
                  spec.name + ": no input that only its recompute needs");
  }
}

void check_groups(const ChainSpec& chain, const Options& options) {
  std::vector<int> contributions(chain.groups.size(), 0);
  TRIREME_CHECK(!chain.units.back().recompute, "the head has no forward of its own to run again");
  for (const UnitSpec& unit : chain.units) {
    for (const int group : unit.reads) {
      TRIREME_CHECK(group >= 0 && group < static_cast<int>(chain.groups.size()), unit.name + ": no such group");
    }
    for (std::size_t i = 0; i < unit.gradients.size(); ++i) {
      const int group = unit.gradients[i];
      TRIREME_CHECK(group >= 0 && group < static_cast<int>(chain.groups.size()), unit.name + ": no such group");
      TRIREME_CHECK(chain.groups[group].trainable,
                    unit.name + ": gradient for frozen group " + chain.groups[group].name);
      const auto begin = unit.gradients.begin();
      TRIREME_CHECK(std::find(begin, begin + i, group) == begin + i, unit.name + ": a group is listed twice");
      TRIREME_CHECK(std::find(unit.reads.begin(), unit.reads.end(), group) != unit.reads.end(),
                    unit.name + ": gradient for group " + chain.groups[group].name + " that it does not read");
      ++contributions[group];
    }
  }
  for (std::size_t group = 0; group < chain.groups.size(); ++group) {
    const GroupSpec& spec = chain.groups[group];
    TRIREME_CHECK(spec.numel > 0 && spec.numel % (options.shard_ranks() * std::int64_t{256}) == 0,
                  spec.name + ": " + std::to_string(spec.numel) + " elements do not make equal, aligned slices");
    check_sharding(spec, options, is_sharded(chain));
    check_sums(spec, options);
    check_tiers(spec, options);
    TRIREME_CHECK(!spec.trainable || contributions[group] > 0, spec.name + ": no unit gives its gradient");
  }
}

}  // namespace

void check_arguments(const ChainSpec& chain, const Options& options, int rank) {
  TRIREME_CHECK(options.world_size >= 1 && rank >= 0 && rank < options.world_size, "rank " + std::to_string(rank));
  if (options.world_size > options.num_micro_batches) {
    throw Error(2210, "schedule",
                std::to_string(options.world_size) + " data ranks for " + std::to_string(options.num_micro_batches) +
                    " micro-batches a step: some ranks would have no work",
                "start at most as many ranks as global_batch_size / micro_batch_size");
  }
  TRIREME_CHECK(!chain.units.empty(), "a chain has at least a head");
  TRIREME_CHECK(options.gradient_slots >= 1, "gradient_slots is " + std::to_string(options.gradient_slots));
  TRIREME_CHECK(options.gather_ahead >= 0, "gather_ahead is " + std::to_string(options.gather_ahead));
  TRIREME_CHECK(options.max_live >= 0, "max_live is " + std::to_string(options.max_live));
  TRIREME_CHECK(options.replicas >= 1 && options.world_size % options.replicas == 0,
                std::to_string(options.replicas) + " replicas of " + std::to_string(options.world_size) + " ranks");
  TRIREME_CHECK(options.snapshots != Snapshots::taken || options.pass != Pass::opening,
                "a snapshot in a pass that has no step");
  check_groups(chain, options);
  check_inputs(chain);
}

}  // namespace trireme::schedule
