#include "schedule/chains.h"

namespace trireme::schedule {

void offload(ChainSpec& chain, bool state, bool weights, bool inputs) {
  for (GroupSpec& group : chain.groups) {
    group.state_on_host = state && group.trainable;
    group.weights_on_host = state && weights && !group.updates_slice_of_whole();
  }
  for (std::size_t unit = 1; unit < chain.units.size(); ++unit) {
    chain.units[unit].input_on_host = inputs && chain.units[unit].recompute && chain.units[unit - 1].output_bytes > 0;
  }
}

std::vector<Program> lower_all(const ChainSpec& chain, const Options& options) {
  std::vector<Program> programs;
  programs.reserve(options.world_size);
  for (int rank = 0; rank < options.world_size; ++rank) {
    programs.push_back(lower(build_schedule(chain, options, rank), options));
  }
  return programs;
}

ChainSpec make_small_chain(int blocks, bool tied) {
  ChainSpec chain;
  const auto add_group = [&](const std::string& name, std::int64_t numel) {
    chain.groups.push_back({name, numel, true});
    return static_cast<int>(chain.groups.size()) - 1;
  };
  const auto add_unit = [&](const std::string& name, const std::vector<int>& groups, std::int64_t output,
                            std::int64_t saved) {
    chain.units.push_back({name, groups, groups, output, saved, 512, 1024, true});
  };
  const int embedding = add_group("embed", 24576);
  add_unit("embed", {embedding}, 2048, 0);
  for (int block = 0; block < blocks; ++block) {
    const std::string name = "block" + std::to_string(block);
    add_unit(name, {add_group(name, 12288)}, 2048, 8192);
  }
  if (tied) {
    add_unit("head", {add_group("head", 12288), embedding}, 0, 0);
  } else {
    add_unit("head", {add_group("head", 24576)}, 0, 0);
  }
  return chain;
}

Case make_random_case(std::uint64_t seed) {
  Dice dice(seed);
  Case random;
  Options& options = random.options;
  options.pass = static_cast<Pass>(dice.below(4));
  options.world_size = dice.between(1, 4);
  options.num_micro_batches = options.world_size + dice.below(7 - options.world_size);
  options.reduce_each_micro_batch = dice.chance(50);
  options.weights_are_master = dice.chance(50);
  options.compute_element_bytes = options.weights_are_master ? 4 : 2;
  options.accumulator_element_bytes = dice.chance(30) ? 2 : 4;
  options.state_bytes_per_element = options.weights_are_master ? 4 * dice.below(3) : 12;
  options.gradient_slots = dice.between(1, 3);
  options.gather_once = dice.chance(30);
  options.gather_ahead = dice.below(4);
  options.reuse_distance = dice.chance(50) ? 0 : std::int64_t{1} << dice.below(16);
  // How much is sharded: nothing, the optimizer, gradients too, parameters too.
  const int row = options.world_size == 1 ? 0 : dice.below(4);
  if (row > 0 && options.world_size == 4 && dice.chance(40)) options.replicas = 2;
  ChainSpec& chain = random.chain;
  const int num_units = dice.between(1, 6);
  const auto some_bytes = [&](int empty_percent) {
    return dice.chance(empty_percent) ? 0 : std::int64_t{4} * dice.between(1, 3000);
  };
  for (int unit = 0; unit < num_units; ++unit) {
    UnitSpec spec;
    spec.name = "unit" + std::to_string(unit);
    for (int own = dice.below(3); own >= 0; --own) {
      const int group = static_cast<int>(chain.groups.size());
      const std::int64_t slices = options.shard_ranks() * std::int64_t{256};
      chain.groups.push_back({"group" + std::to_string(group), slices * dice.between(1, 12), dice.chance(85)});
      GroupSpec& added = chain.groups.back();
      added.shards_parameters = row == 3 && dice.chance(80);  // some are below the threshold
      added.shards_gradients = row >= 2 && added.trainable;
      added.shards_optimizer = row >= 1 && added.trainable;
      const bool sums_alone = options.world_size == 1 || !options.reduce_each_micro_batch;
      added.adds_in_place = added.trainable && !added.shards_gradients && sums_alone && dice.chance(50);
      spec.reads.push_back(group);
    }
    if (unit > 0 && dice.chance(30))
      spec.reads.push_back(dice.below(static_cast<int>(chain.units[unit - 1].reads[0]) + 1));
    for (const int group : spec.reads) {
      if (chain.groups[group].trainable) spec.gradients.push_back(group);
    }
    const bool head = unit == num_units - 1;
    spec.output_bytes = head ? 0 : std::int64_t{4} * dice.between(1, 1500);
    spec.saved_bytes = head ? 0 : some_bytes(20);
    spec.forward_workspace_bytes = some_bytes(30);
    spec.backward_workspace_bytes = some_bytes(30);
    spec.backward_reads_input = dice.chance(70);
    spec.recompute = !head && dice.chance(30);
    chain.units.push_back(spec);
  }
  for (UnitSpec& unit : chain.units) {
    for (double* cost :
         {&unit.forward_flops, &unit.backward_flops, &unit.forward_bytes_moved, &unit.backward_bytes_moved}) {
      *cost = 1000.0 * dice.below(1000);
    }
  }
  if (row == 3 && dice.chance(50)) options.max_live = 256 * dice.between(1, 100);
  if (dice.chance(50)) {
    const bool state = dice.chance(80), weights = dice.chance(50);
    offload(chain, state, weights, dice.chance(70));
    options.steps_wait = options.pass != Pass::closed || dice.chance(50);
  }
  options.snapshots = static_cast<Snapshots>(dice.below(options.pass == Pass::opening ? 2 : 3));
  return random;
}

std::string describe(const Case& random) {
  constexpr const char* kPasses[] = {"closed", "opening", "cycle", "drain"};
  const Options& options = random.options;
  return kPasses[static_cast<int>(options.pass)] + std::string(": ") + std::to_string(random.chain.units.size()) +
         " units, " + std::to_string(random.chain.groups.size()) + " groups, " + std::to_string(options.world_size) +
         " ranks, " + std::to_string(options.num_micro_batches) + " micro-batches, reduce_each_micro_batch " +
         std::to_string(options.reduce_each_micro_batch) + ", " + std::to_string(options.gradient_slots) + " slots, " +
         std::to_string(options.replicas) + " replicas, ahead " + std::to_string(options.gather_ahead) +
         (options.gather_once ? ", gathered once" : "") +
         (options.max_live > 0 ? ", at most " + std::to_string(options.max_live) + " gathered" : "") +
         (random.chain.groups[0].shards_optimizer ? ", sharded" : "") +
         (random.chain.groups[0].state_on_host ? ", offloaded" : "") +
         (options.steps_wait ? "" : ", steps do not wait") +
         (options.snapshots == Snapshots::none   ? ""
          : options.snapshots == Snapshots::kept ? ", keeps a snapshot"
                                                 : ", takes a snapshot");
}

}  // namespace trireme::schedule
