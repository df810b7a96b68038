#include "config/schema_rows.h"

namespace trireme::config {
namespace {

std::vector<Synonym> words_of_offload() {
  return {{"false", "none"}, {"off", "none"}, {"no", "none"}, {"true", "cpu"}, {"on", "cpu"}, {"yes", "cpu"}};
}

}  // namespace

std::vector<Key> offload_keys() {
  return {
      {.name = "distributed.offload_optimizer",
       .type = Type::choice,
       .derive = [](const Plan& plan) -> Value {
         return std::string(plan.distributed.offload_param == Offload::cpu ? "cpu" : "none");
       },
       .rule = "as offload_param",
       .choices = {"none", "cpu"},
       .choices_not_yet = {"nvme"},
       .value_synonyms = words_of_offload(),
       .aliases = {{"offload_optimizer_device", kAccelerate}, {"distributed.offload_optimizer.device", kDeepSpeed}},
       .field = field<&Plan::distributed, &DistributedPlan::offload_optimizer>(),
       .doc = "cpu: the optimizer's state, with the master weights, is in host memory and is updated there. Without "
              "gradient_clipping each storage group is updated during the backward, as soon as its gradient is there."},
      {.name = "distributed.offload_param",
       .type = Type::choice,
       .fallback = "none",
       .choices = {"none", "cpu"},
       .choices_not_yet = {"nvme"},
       .value_synonyms = words_of_offload(),
       .aliases = {{"offload_params", kGuides},
                   {"offload_param_device", kAccelerate},
                   {"distributed.offload_param.device", kDeepSpeed},
                   {"cpu_offload", kFsdp}},
       .field = field<&Plan::distributed, &DistributedPlan::offload_param>(),
       .doc = "Where parameters are sharded; cpu: the slices are in host memory, with the optimizer's state, and are "
              "fetched one unit ahead of their gather. On one rank: all parameters, fetched for the units at work."},
  };
}

}  // namespace trireme::config
