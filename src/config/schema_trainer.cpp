// Arguments of Hugging Face's Trainer (transformers 5.24) that are no keys of ours by another name.
#include "config/schema_rows.h"

namespace trireme::config {
namespace {

Key argument(std::string_view name, Type type, Tier tier, std::vector<std::string_view> inert, std::string_view doc) {
  return {
      .name = name, .type = type, .tier = tier, .optional = true, .inert = std::move(inert), .aliases = {}, .doc = doc};
}

Key idle(std::string_view name, std::string_view doc) {
  return argument(name, Type::any, Tier::no_effect, {}, doc);
}

Key switched_off(std::string_view name, std::string_view doc) {
  return argument(name, Type::boolean, Tier::not_yet, {"false"}, doc);
}

Key with_name(Key key, std::string_view other) {
  key.aliases.push_back({other, kHuggingFace});
  return key;
}

std::vector<Key> rhythm_arguments() {
  return {
      with_name(argument("training.eval_strategy", Type::text, Tier::not_yet, {"steps", "no", "off", "false"},
                         "Evaluation once an epoch; training.eval_interval counts steps."),
                "evaluation_strategy"),
      argument("training.save_strategy", Type::text, Tier::not_yet, {"steps"},
               "Saving once an epoch, never, or the best; checkpoint.save_interval counts steps, and with 0 saves at "
               "the end only."),
      argument("training.logging_strategy", Type::text, Tier::not_yet, {"steps"},
               "Lines once an epoch, or none; monitor.log_interval counts steps."),
      switched_off("training.eval_on_start", "An evaluation before the first step."),
      argument("training.eval_delay", Type::number, Tier::not_yet, {"0"}, "Evaluation only after some steps."),
      switched_off("training.load_best_model_at_end", "Going back to the best checkpoint at the end."),
      idle("training.metric_for_best_model", "no checkpoint is the best; the loss of each is in metrics.jsonl"),
      idle("training.greater_is_better", "no checkpoint is the best; the loss of each is in metrics.jsonl"),
      idle("training.logging_first_step", "metrics.jsonl has every step"),
      idle("training.logging_dir", "logs and event files are in output_dir"),
      idle("training.log_level", "one log a rank is in logs/ of output_dir"),
      idle("training.disable_tqdm", "there is no bar, but a line each monitor.log_interval steps"),
      idle("training.include_num_input_tokens_seen", "metrics.jsonl has the tokens of every step"),
      switched_off("training.push_to_hub", "Uploading; trireme convert writes a Hugging Face folder."),
      idle("training.hub_model_id", "nothing is uploaded"),
      switched_off("training.save_only_model", "Checkpoints without the optimizer, which no run can go on from."),
      switched_off("training.save_on_each_node", "Checkpoints on each machine's own disk."),
      idle("training.overwrite_output_dir", "checkpoint.resume says whether a run goes on or starts anew"),
      switched_off("training.ignore_data_skip", "Going on with the first samples again; a run goes on where it was."),
  };
}

std::vector<Key> batch_arguments() {
  return {
      idle("training.per_device_eval_batch_size", "evaluation takes training.micro_batch_size samples at once"),
      idle("training.eval_accumulation_steps", "an evaluation keeps its loss only"),
      idle("training.prediction_loss_only", "an evaluation keeps its loss only"),
      idle("training.data_seed", "training.seed decides the order of the samples too"),
      switched_off("training.group_by_length", "Batches of samples of one length; data.packing leaves none short."),
      idle("training.length_column_name", "prepared data has tokens only"),
      switched_off("training.auto_find_batch_size",
                   "Trying smaller batches; training.memory_budget refuses what does not fit, and says what would."),
      argument("training.average_tokens_across_devices", Type::boolean, Tier::not_yet, {"true"},
               "A loss averaged on each rank by itself; it is over the tokens of all ranks."),
  };
}

std::vector<Key> device_arguments() {
  constexpr std::string_view kDevice = "training.device says where training runs",
                             kOwn = "the kernels are this program's own",
                             kSchedule = "a block is computed again by the schedule";
  return {
      idle("training.use_cpu", kDevice),
      idle("training.no_cuda", kDevice),
      idle("training.tf32", "fp32 is fp32"),
      idle("training.torch_empty_cache_steps", "memory is planned, and there is no cache"),
      idle("training.use_liger_kernel", kOwn),
      idle("training.gradient_checkpointing_kwargs", kSchedule),
      idle("training.full_determinism", "every run gives the same bits"),
      switched_off("training.bf16_full_eval", "An evaluation in bf16 alone; it is in training.mixed_precision."),
      switched_off("training.fp16_full_eval", "An evaluation in fp16 alone; it is in training.mixed_precision."),
      argument("training.neftune_noise_alpha", Type::number, Tier::not_yet, {"0"}, "Noise on the embeddings."),
      argument("training.optim_args", Type::any, Tier::not_yet, {},
               "The optimizer's options as one text; each has a key."),
      argument("training.lr_scheduler_kwargs", Type::any, Tier::not_yet, {},
               "The law's options as a block; each has a key."),
      argument("training.do_train", Type::boolean, Tier::not_yet, {"true"}, "A run that does not train."),
      idle("training.do_eval", "evaluation follows where there is held-out data (training.eval_interval)"),
      switched_off("training.do_predict", "Predictions of a trained model; trireme generate continues texts."),
  };
}

}  // namespace

std::vector<Key> trainer_keys() {
  std::vector<Key> rows = rhythm_arguments();
  append(rows, batch_arguments());
  append(rows, device_arguments());
  return rows;
}

}  // namespace trireme::config
