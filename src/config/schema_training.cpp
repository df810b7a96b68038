#include "config/schema_rows.h"

namespace trireme::config {
namespace {

std::vector<Key> training_size_keys() {
  return {
      {.name = "training.max_steps",
       .type = Type::integer,
       .optional = true,
       .range = from(1, kMaxSteps),
       .aliases = {{"steps", kTitan}, {"max_iters", kNanoGpt}, {"train_iters", kMegatron}, {"total_steps", kGuides}},
       .decides = law_knows_the_end,
       .field = field<&Plan::training, &TrainingPlan::max_steps>(),
       .doc = "Optimizer steps of the run; wins over num_epochs, and one of the two is needed."},
      {.name = "training.num_epochs",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e9),
       .aliases = {{"num_train_epochs", kHuggingFace}, {"max_epochs", kLightning}, {"epochs", kGuides}},
       .decides = [](const Plan& plan) { return !plan.training.max_steps && law_knows_the_end(plan); },
       .field = field<&Plan::training, &TrainingPlan::num_epochs>(),
       .doc = "Passes over the training split."},
      {.name = "training.global_batch_size",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e9),
       .aliases = {{"train_batch_size", kDeepSpeed}, {"total_batch_size", kGuides}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::global_batch_size>(),
       .doc = "Samples of a step over all ranks: micro_batch_size x gradient_accumulation_steps x data ranks, where "
              "two of "
              "the three give the third; fixed at the first start."},
      {.name = "training.micro_batch_size",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1 << 20),
       .aliases = {{"per_device_train_batch_size", kHuggingFace},
                   {"per_device_batch_size", kGuides},
                   {"train_micro_batch_size_per_gpu", kDeepSpeed},
                   {"local_batch_size", kTitan},
                   {"batch_size", kGuides}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::micro_batch_size>(),
       .doc = "Samples that a rank computes at once (B). Unset: what global_batch_size and "
              "gradient_accumulation_steps leave for it, else 1."},
      {.name = "training.gradient_accumulation_steps",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1 << 20),
       .aliases = {{"distributed.gradient_accumulation_steps", kGuides},
                   {"accumulate_grad_batches", kLightning},
                   {"grad_accum_steps", kGuides}},
       .decides = [](const Plan& plan) { return !plan.training.global_batch_size; },
       .field = field<&Plan::training, &TrainingPlan::gradient_accumulation_steps>(),
       .doc =
           "Micro-batches of a rank in a step. Unset: what global_batch_size leaves for it, also a last round that not "
           "all ranks share; else 1."},
      {.name = "training.reduce_each_micro_batch",
       .type = Type::boolean,
       .fallback = "false",
       .decides = sums_once_a_step,
       .field = field<&Plan::training, &TrainingPlan::reduce_each_micro_batch>(),
       .doc = "Add up gradients after each micro-batch, in an order that gives the same bits on any number of ranks."},
      {.name = "training.compute_threads",
       .type = Type::integer,
       .fallback = "1",
       .range = from(1, 1024),
       .aliases = {{"omp_num_threads", kGuides}, {"num_threads", kGuides}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::compute_threads>(),
       .doc = "Compute threads of a rank on the CPU; bits hold for an equal number of them."},
      {.name = "training.device",
       .type = Type::choice,
       .fallback = "auto",
       .choices = {"auto", "cpu", "cuda"},
       .value_synonyms = {{"gpu", "cuda"}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::device>(),
       .doc = "Where the computation runs. cuda: on the CUDA device of the rank's number on its machine, with several "
              "ranks by copies or over NCCL; auto: that where each rank of the machine has one, else cpu."},
      {.name = "training.mixed_precision",
       .type = Type::choice,
       .derive = [](const Plan& plan) -> Value {
         const auto chosen = static_cast<std::size_t>(plan.precision.param_dtype.value_or(MixedPrecision::no));
         return std::string(key_named("training.mixed_precision").choices[chosen]);
       },
       .rule = "param_dtype, else no",
       .choices = {"no", "bf16", "fp16"},
       .choices_not_yet = {"fp8"},
       .value_synonyms = {{"false", "no"},
                          {"off", "no"},
                          {"none", "no"},
                          {"fp32", "no"},
                          {"float32", "no"},
                          {"32", "no"},
                          {"32_true", "no"},
                          {"bfloat16", "bf16"},
                          {"bf16_mixed", "bf16"},
                          {"float16", "fp16"},
                          {"half", "fp16"},
                          {"16_mixed", "fp16"}},
       .aliases = {{"bf16", kHuggingFace, {{"true", "bf16"}, {"false", ""}}},
                   {"fp16", kHuggingFace, {{"true", "fp16"}, {"false", ""}}},
                   {"precision", kLightning},
                   {"dtype", kNanoGpt}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::mixed_precision>(),
       .doc = "Type of the computation (no: fp32); master_dtype and moment_dtype say that of the state. bf16 has "
              "fp32's range; fp16 ends at 65504 and, near zero, at 6e-8, but has three bits more."},
      {.name = "training.freeze",
       .type = Type::texts,
       .fallback = "none",
       .value_synonyms = {{"none", ""}},
       .decides = [](const Plan& plan) { return !plan.training.freeze.empty(); },
       .field = field<&Plan::training, &TrainingPlan::freeze>(),
       .doc = "Tensors that are not trained, by their Hugging Face names with * ? [...], as in "
              "[model.embed_tokens.*, model.layers.[0-3].*]. They have no gradients, optimizer state or masters apart, "
              "and below the first block that is trained there is no backward. With mixed_precision they are rounded "
              "once, when they are loaded, and saved as they are then."},
      {.name = "training.gradient_checkpointing",
       .type = Type::choice,
       .fallback = "none",
       .choices = {"none", "selective", "full"},
       .value_synonyms =
           {{"false", "none"}, {"off", "none"}, {"no", "none"}, {"true", "full"}, {"on", "full"}, {"yes", "full"}},
       .aliases = {{"activation_checkpointing", kGuides},
                   {"training.activation_checkpointing.enabled", kGuides},
                   {"model.gradient_checkpointing", kHuggingFace}},
       .field = field<&Plan::training, &TrainingPlan::gradient_checkpointing>(),
       .doc = "What a block does not keep for its backward but computes again, to the same bits. selective: the wide "
              "rows of the feed-forward network; full: everything but its input."},
      {.name = "training.recompute_every",
       .type = Type::integer,
       .fallback = "1",
       .range = from(1, 1e6),
       .field = field<&Plan::training, &TrainingPlan::recompute_every>(),
       .doc = "With gradient_checkpointing full: only every k-th block."},
      {.name = "training.cpu_checkpointing",
       .type = Type::boolean,
       .fallback = "false",
       .aliases = {{"distributed.offload_activations", kGuides},
                   {"training.activation_checkpointing.cpu_checkpointing", kGuides}},
       .field = field<&Plan::training, &TrainingPlan::cpu_checkpointing>(),
       .doc = "With gradient_checkpointing full: the inputs of blocks wait in host memory for their backward."},
      {.name = "training.memory_budget",
       .type = Type::integer,
       .optional = true,
       .range = at_least(0),
       .field = field<&Plan::training, &TrainingPlan::memory_budget>(),
       .doc = "Bytes that a rank may take, beside host memory of offloading, for weights, optimizer, gradients, "
              "activations and workspace. A plan that needs more is refused with the cheapest change that fits. 0: no "
              "limit; unset: what the rank's CUDA device has free, and no limit on the CPU."},
      {.name = "training.seed",
       .type = Type::integer,
       .fallback = "0",
       .range = at_least(0),
       .aliases = {{"random_seed", kGuides}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::seed>(),
       .doc = "Decides the initial weights and the order of the samples."},
      {.name = "training.deterministic",
       .type = Type::boolean,
       .fallback = "true",
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::deterministic>(),
       .doc = "The same run has the same bits, also where it resumes. false: on devices cuDNN may add up attention's "
              "gradients in any order, as PyTorch has it, and where ranks keep whole sums of gradients, those of "
              "matrices are added to them as they are computed, not rounded first: faster by a few per cent; the CPU's "
              "bits stay."},
  };
}

std::vector<Key> clipping_and_evaluation_keys() {
  return {
      {.name = "training.gradient_clipping",
       .type = Type::number,
       .fallback = "1",
       .range = at_least(0),
       .aliases = {{"max_grad_norm", kHuggingFace},
                   {"gradient_clip_norm", kGuides},
                   {"max_norm", kTitan},
                   {"clip_grad", kMegatron},
                   {"grad_clip", kNanoGpt},
                   {"gradient_clip_val", kLightning}},
       .decides = always,
       .field = field<&Plan::training, &TrainingPlan::gradient_clipping>(),
       .doc = "Largest norm of the whole gradient; 0: no clipping."},
      {.name = "training.eval_interval",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, kMaxSteps),
       .aliases = {{"eval_steps", kHuggingFace}, {"val_check_interval", kLightning}},
       .field = field<&Plan::training, &TrainingPlan::eval_interval>(),
       .doc = "Steps between evaluations on the held-out split; 0: at the end only."},
      {.name = "training.eval_samples",
       .type = Type::integer,
       .optional = true,
       .range = from(1, kMaxSteps),
       .aliases = {{"max_eval_samples", kHuggingFace}},
       .field = field<&Plan::training, &TrainingPlan::eval_samples>(),
       .doc = "Samples of an evaluation; unset: the whole held-out split."},
  };
}

std::vector<Key> strategy_keys() {
  return {
      {.name = "distributed.strategy",
       .type = Type::choice,
       .fallback = "ddp",
       .choices = {"ddp", "no_shard", "zero1", "zero2", "zero3", "shard_grad_op", "full_shard", "hybrid_shard"},
       .value_synonyms = {{"zero_1", "zero1"}, {"zero_2", "zero2"}, {"zero_3", "zero3"}, {"fsdp", "full_shard"}},
       .aliases = {{"sharding_strategy", kGuides},
                   {"zero_stage", kGuides, {{"0", "ddp"}, {"1", "zero1"}, {"2", "zero2"}, {"3", "zero3"}}}},
       .decides = sums_once_a_step,
       .field = field<&Plan::distributed, &DistributedPlan::strategy>(),
       .doc =
           "What each rank keeps as its slice only. ddp, no_shard: nothing; zero1: optimizer state; zero2: gradients "
           "too; zero3, full_shard: parameters too, gathered for the units at work; shard_grad_op: the same, gathered "
           "once a step; hybrid_shard: full_shard among dp_shard ranks, by default those of a machine, copied over "
           "dp_replicate."},
      {.name = "distributed.num_processes",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e6),
       .field = field<&Plan::distributed, &DistributedPlan::num_processes>(),
       .doc = "How many ranks the run must have; another number is refused. Unset: any."},
      {.name = "distributed.dp_replicate",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e6),
       .aliases = {{"data_parallel_replicate_degree", kTitan}},
       .decides = always,
       .field = field<&Plan::distributed, &DistributedPlan::dp_replicate>(),
       .doc = "Sets of ranks that each hold all slices; unset: the ranks divided by dp_shard, else one."},
      {.name = "distributed.dp_shard",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e6),
       .aliases = {{"data_parallel_shard_degree", kTitan}},
       .decides = always,
       .field = field<&Plan::distributed, &DistributedPlan::dp_shard>(),
       .doc = "Ranks of a set, neighbours, among which is sharded; unset: the ranks divided by dp_replicate."},
      {.name = "distributed.auto_wrap",
       .type = Type::choice,
       .fallback = "transformer",
       .choices = {"transformer", "size", "by_name", "none"},
       .field = field<&Plan::distributed, &DistributedPlan::auto_wrap>(),
       .doc = "Which units store, gather and reduce their parameters together. transformer: the embedding, each block "
              "and the head by itself; size: neighbours until they have min_num_params; by_name: from each unit that "
              "wrap_names names to the next; none: all. Changes memory and time, no number."},
      {.name = "distributed.min_num_params",
       .type = Type::integer,
       .fallback = "100000000",
       .range = from(0, 1e15),
       .field = field<&Plan::distributed, &DistributedPlan::min_num_params>(),
       .doc = "auto_wrap size: fewest elements of the units that are stored together."},
      {.name = "distributed.wrap_names",
       .type = Type::texts,
       .fallback = "none",
       .value_synonyms = {{"none", ""}},
       .field = field<&Plan::distributed, &DistributedPlan::wrap_names>(),
       .doc =
           "auto_wrap by_name: names of units (embed, layers.0, ..., head) with * ? [...], as in [layers.*[02468]]."},
      {.name = "distributed.wrap_classes",
       .type = Type::texts,
       .fallback = "none",
       .value_synonyms = {{"none", ""}},
       .field = field<&Plan::distributed, &DistributedPlan::wrap_classes>(),
       .doc =
           "Classes of blocks by their names in transformers, as [LlamaDecoderLayer, GPT2Block]: one of them must be "
           "the model's, which auto_wrap transformer wraps whatever it is called."},
      {.name = "distributed.bucket_size",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e15),
       .aliases = {{"reduce_bucket_size", kDeepSpeed}, {"reduce_scatter_base_size", kGuides}},
       .field = field<&Plan::distributed, &DistributedPlan::bucket_size>(),
       .doc = "Most elements of a storage group, which is one collective; a parameter of more is a group by itself. "
              "Unset: no bound."},
      {.name = "distributed.allgather_bucket_size",
       .type = Type::integer,
       .optional = true,
       .range = from(1, 1e15),
       .aliases = {{"allgather_base_size", kGuides}},
       .field = field<&Plan::distributed, &DistributedPlan::allgather_bucket_size>(),
       .doc = "The same by DeepSpeed's other name: a group is gathered and reduced as one, so the smaller governs."},
      {.name = "distributed.persistence_threshold",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, 1e15),
       .aliases = {{"stage3_param_persistence_threshold", kDeepSpeed}},
       .field = field<&Plan::distributed, &DistributedPlan::persistence_threshold>(),
       .doc = "Where parameters are sharded: storage groups of fewer elements keep theirs whole."},
      {.name = "distributed.gather_ahead",
       .type = Type::integer,
       .fallback = "1",
       .range = from(0, 1024),
       .field = field<&Plan::distributed, &DistributedPlan::gather_ahead>(),
       .doc = "How many units ahead of the one at work sharded parameters are gathered."},
      {.name = "distributed.reuse_distance",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, 1e15),
       .aliases = {{"stage3_max_reuse_distance", kDeepSpeed}},
       .field = field<&Plan::distributed, &DistributedPlan::reuse_distance>(),
       .doc = "Gathered parameters stay where fewer elements of others are needed before they are again."},
      {.name = "distributed.max_live_parameters",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, 1e15),
       .aliases = {{"stage3_max_live_parameters", kDeepSpeed}},
       .field = field<&Plan::distributed, &DistributedPlan::max_live_parameters>(),
       .doc = "Most elements of sharded parameters that are gathered at a time, whatever gather_ahead, reuse_distance "
              "and the strategy would keep; only a unit that needs more by itself gets more. 0: no bound."},
      {.name = "distributed.gradient_slots",
       .type = Type::integer,
       .fallback = "2",
       .range = from(1, 1024),
       .field = field<&Plan::distributed, &DistributedPlan::gradient_slots>(),
       .doc = "How many units' gradients may wait for their reduction while the backward goes on."},
      {.name = "distributed.overlap_comm",
       .type = Type::boolean,
       .fallback = "true",
       .field = field<&Plan::distributed, &DistributedPlan::overlap_comm>(),
       .doc =
           "Communicate beside the computation, and where ranks update slices, or in host memory, run the update into "
           "the next step's forward. false: one after another, for comparison."},
  };
}

}  // namespace

std::vector<Key> training_and_run_keys() {
  std::vector<Key> rows;
  append(rows, training_size_keys());
  append(rows, law_keys());
  append(rows, optimizer_keys());
  append(rows, precision_keys());
  append(rows, clipping_and_evaluation_keys());
  append(rows, strategy_keys());
  append(rows, offload_keys());
  append(rows, run_keys());
  return rows;
}

}  // namespace trireme::config
