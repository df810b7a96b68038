// The keys of what goes on around the steps: waiting, saving, reporting.
#include "config/schema_rows.h"

namespace trireme::config {

std::vector<Key> run_keys() {
  return {
      {.name = "distributed.timeout_seconds",
       .type = Type::integer,
       .fallback = "600",
       .range = from(1, 604800),
       .aliases = {{"timeout", kGuides}, {"training.ddp_timeout", kHuggingFace}},
       .field = field<&Plan::distributed, &DistributedPlan::timeout_seconds>(),
       .doc = "How long a rank waits for the others before it gives up."},
      {.name = "distributed.same_host_memory",
       .type = Type::boolean,
       .fallback = "true",
       .field = field<&Plan::distributed, &DistributedPlan::same_host_memory>(),
       .doc = "Ranks of one machine talk through memory that they share, at most 32 MiB in all, where they can; the "
              "others, and with false all, through Gloo. On CUDA devices that reach each other's memory they write it "
              "with "
              "copies, which take no multiprocessor; the others, and with false all, talk through NCCL. The values are "
              "the same."},
      {.name = "checkpoint.save_interval",
       .type = Type::integer,
       .fallback = "500",
       .range = from(0, kMaxSteps),
       .aliases = {{"save_steps", kHuggingFace},
                   {"training.save_steps", kHuggingFace},
                   {"interval", kTitan},
                   {"training.save_interval", kMegatron},
                   {"checkpoint_interval", kGuides},
                   {"fault_tolerance.checkpoint_interval", kGuides}},
       .field = field<&Plan::checkpoint, &CheckpointPlan::save_interval>(),
       .doc = "Steps between checkpoints; 0: at the end only."},
      {.name = "checkpoint.keep",
       .type = Type::integer,
       .fallback = "3",
       .range = from(0, 1e9),
       .aliases = {{"save_total_limit", kHuggingFace},
                   {"training.save_total_limit", kHuggingFace},
                   {"keep_latest_k", kTitan},
                   {"keep_checkpoints", kGuides},
                   {"keep_interval", kGuides}},
       .field = field<&Plan::checkpoint, &CheckpointPlan::keep>(),
       .doc = "How many of the newest checkpoints stay; 0: all."},
      {.name = "checkpoint.resume",
       .type = Type::choice,
       .fallback = "auto",
       .choices = {"auto", "must", "never"},
       .aliases = {{"resume_from_checkpoint", kHuggingFace, {{"true", "must"}, {"false", "never"}}},
                   {"training.resume_from_checkpoint", kHuggingFace, {{"true", "must"}, {"false", "never"}}},
                   {"auto_resume", kGuides, {{"true", "auto"}, {"false", "never"}}},
                   {"fault_tolerance.auto_resume", kGuides, {{"true", "auto"}, {"false", "never"}}}},
       .field = field<&Plan::checkpoint, &CheckpointPlan::resume>(),
       .doc =
           "auto: from the newest valid checkpoint in output_dir if there is one; must: an error without one; never: "
           "from the start."},
      {.name = "monitor.log_interval",
       .type = Type::integer,
       .fallback = "1",
       .range = from(1, kMaxSteps),
       .aliases = {{"logging_steps", kHuggingFace},
                   {"training.logging_steps", kHuggingFace},
                   {"log_every_n_steps", kLightning},
                   {"steps_per_print", kDeepSpeed},
                   {"training.steps_per_print", kDeepSpeed},
                   {"log_freq", kTitan},
                   {"training.log_interval", kMegatron}},
       .field = field<&Plan::monitor, &MonitorPlan::log_interval>(),
       .doc = "Steps between lines on the console; metrics.jsonl has every step."},
      {.name = "monitor.wall_clock_breakdown",
       .type = Type::boolean,
       .fallback = "false",
       .aliases = {{"training.wall_clock_breakdown", kDeepSpeed}},
       .field = field<&Plan::monitor, &MonitorPlan::wall_clock_breakdown>(),
       .doc = "Milliseconds of rank 0 for forward, recompute, backward, step, gather, reduce, copy, for waiting (the "
              "compute "
              "lane is in no instruction because it needs a collective) and outside all of these (the loader, and "
              "whatever else lies between the instructions)."},
      {.name = "monitor.report_to",
       .type = Type::choices,
       .fallback = "none",
       .choices = {"tensorboard"},
       .choices_not_yet = {"wandb", "mlflow", "comet_ml", "clearml", "neptune", "azure_ml", "prometheus"},
       .value_synonyms = {{"none", ""}, {"jsonl", ""}, {"console", ""}, {"all", "tensorboard"}},
       .aliases = {{"training.report_to", kHuggingFace},
                   {"distributed.report_to", kGuides},
                   {"checkpoint.report_to", kGuides},
                   {"model.report_to", kGuides},
                   {"data.report_to", kGuides}},
       .field = field<&Plan::monitor, &MonitorPlan::report_to>(),
       .doc = "Receivers beside the console and metrics.jsonl, which always get all; tensorboard: event files in "
              "`OUTPUT_DIR/tensorboard`."},
      {.name = "monitor.trace_step",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, kMaxSteps),
       .field = field<&Plan::monitor, &MonitorPlan::trace_step>(),
       .doc = "The step of which each rank R writes its timeline, planned and measured, into "
              "`OUTPUT_DIR/trace-step-N-rank-R.json`, for chrome://tracing and Perfetto; 0: none."},
      {.name = "monitor.exposed_communication",
       .type = Type::integer,
       .fallback = "0",
       .range = from(0, 1000),
       .field = field<&Plan::monitor, &MonitorPlan::exposed_communication>(),
       .doc = "Before the first step, so many steps with and without their collectives on a model of its own, which is "
              "thrown away: the difference is what communication costs that nothing hides. Warns (TR2295) where "
              "communication was to run beside the computing, there is a core for it, and it does not. 0: none."},
  };
}

}  // namespace trireme::config
