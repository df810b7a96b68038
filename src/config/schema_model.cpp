#include "config/schema_rows.h"

namespace trireme::config {
namespace {

std::vector<Key> top_keys() {
  return {
      {.name = "name",
       .type = Type::text,
       .rule = "the file's name",
       .aliases = {{"run_name", kHuggingFace}, {"training.run_name", kHuggingFace}, {"job_name", kGuides}},
       .field = field<&Plan::name>(),
       .doc = "Name of the run: letters, digits, dot, underscore and dash."},
      {.name = "output_dir",
       .type = Type::path,
       .derive = [](const Plan& plan) -> Value { return "runs/" + plan.name; },
       .rule = "runs/NAME",
       .aliases = {{"save_dir", kGuides}, {"out_dir", kNanoGpt}, {"training.output_dir", kHuggingFace}},
       .field = field<&Plan::output_dir>(),
       .doc = "Folder of the run: metrics.jsonl, config.resolved.yaml, checkpoints/, logs/."},
  };
}

// Multiple of 64 next to 8/3 of the width: three SwiGLU matrices then have the parameters of two of 4 C.
Value default_intermediate_size(const Plan& plan) {
  if (plan.model.family == "gpt2") return plan.model.hidden_size * 4;
  return (plan.model.hidden_size * 8 / 3 + 63) / 64 * 64;
}

std::vector<Key> model_size_keys() {
  return {
      {.name = "model.path",
       .type = Type::path,
       .optional = true,
       .aliases = {{"model_name_or_path", kHuggingFace},
                   {"pretrained_model_name_or_path", kHuggingFace},
                   {"name_or_path", kHuggingFace}},
       .field = field<&Plan::model, &ModelPlan::path>(),
       .doc = "Hugging Face folder, or org/name of one in the local cache, to start from: its weights, its sizes. "
              "Other keys of this block are then not needed and may not contradict it."},
      {.name = "model.family",
       .type = Type::choice,
       .fallback = "llama",
       .choices = {"llama", "gpt2"},
       .choices_not_yet = {"mistral", "qwen2", "qwen3", "gemma", "free_transformer", "module"},
       .aliases = {{"model_type", kHuggingFace}, {"architecture", kGuides}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::family>(),
       .doc = "The architecture."},
      {.name = "model.hidden_size",
       .type = Type::integer,
       .required = true,
       .range = from(1, 1 << 20),
       .aliases = {{"n_embd", kNanoGpt}, {"d_model", kGuides}, {"dim", kTitan}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::hidden_size>(),
       .doc = "Width of the residual stream (C)."},
      {.name = "model.num_layers",
       .type = Type::integer,
       .required = true,
       .range = from(1, 10000),
       .aliases = {{"num_hidden_layers", kHuggingFace}, {"n_layer", kNanoGpt}, {"n_layers", kTitan}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::num_layers>(),
       .doc = "Number of transformer blocks (L)."},
      {.name = "model.num_heads",
       .type = Type::integer,
       .required = true,
       .range = from(1, 65536),
       .aliases = {{"num_attention_heads", kHuggingFace}, {"n_head", kNanoGpt}, {"n_heads", kTitan}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::num_heads>(),
       .doc = "Number of query heads (H)."},
      {.name = "model.num_key_value_heads",
       .type = Type::integer,
       .derive = [](const Plan& plan) -> Value { return plan.model.num_heads; },
       .rule = "num_heads",
       .range = from(1, 65536),
       .aliases = {{"n_kv_heads", kTitan}, {"num_query_groups", kMegatron}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::num_key_value_heads>(),
       .doc = "Number of key and value heads; divides num_heads (grouped-query attention where it is smaller)."},
      {.name = "model.head_dim",
       .type = Type::integer,
       .derive = [](const Plan& plan) -> Value { return plan.model.hidden_size / plan.model.num_heads; },
       .rule = "hidden_size / num_heads",
       .range = from(1, 65536),
       .aliases = {{"kv_channels", kMegatron}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::head_dim>(),
       .doc = "Size of a head (D); even."},
      {.name = "model.intermediate_size",
       .type = Type::integer,
       .derive = default_intermediate_size,
       .rule = "8/3 hidden_size, up to a multiple of 64; gpt2: 4 hidden_size",
       .range = from(1, 1 << 22),
       .aliases = {{"ffn_hidden_size", kMegatron}, {"ffn_dim", kGuides}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::intermediate_size>(),
       .doc = "Inner width of the feed-forward layer."},
      {.name = "model.vocab_size",
       .type = Type::integer,
       .optional = true,
       .range = from(2, 1 << 24),
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::vocab_size>(),
       .doc = "Vocabulary; unset: that of the tokenizer of the data."},
  };
}

std::vector<Key> model_detail_keys() {
  return {
      {.name = "model.max_position_embeddings",
       .type = Type::integer,
       .derive = [](const Plan& plan) -> Value { return plan.data.sequence_length; },
       .rule = "data.sequence_length",
       .range = from(1, 1 << 24),
       .aliases = {{"n_positions", kHuggingFace}, {"max_seq_len", kTitan}},
       .field = field<&Plan::model, &ModelPlan::max_position_embeddings>(),
       .doc = "Longest sequence that the model is meant for; at least data.sequence_length."},
      {.name = "model.rope_theta",
       .type = Type::number,
       .fallback = "10000",
       .range = above(0),
       .aliases = {{"rotary_base", kMegatron}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::rope_theta>(),
       .doc = "Base of the rotary position embedding."},
      {.name = "model.rms_norm_eps",
       .type = Type::number,
       .fallback = "1e-5",
       .range = above(0),
       .aliases = {{"norm_eps", kTitan}, {"norm_epsilon", kMegatron}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::rms_norm_eps>(),
       .doc = "Added to the mean square in RMSNorm, to the variance in LayerNorm."},
      {.name = "model.initializer_range",
       .type = Type::number,
       .fallback = "0.02",
       .range = at_least(0),
       .aliases = {{"init_method_std", kMegatron}, {"init_std", kGuides}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::initializer_range>(),
       .doc = "Standard deviation of the initial weights; residual outputs get it divided by the root of 2 L."},
      {.name = "model.attention_dropout",
       .type = Type::number,
       .fallback = "0",
       .range = share_below_one(),
       .aliases = {{"attn_pdrop", kHuggingFace}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::attention_dropout>(),
       .doc = "Probability that training drops an attention weight; below 1."},
      {.name = "model.hidden_dropout",
       .type = Type::number,
       .fallback = "0",
       .range = share_below_one(),
       .aliases = {{"dropout", kGuides}, {"resid_pdrop", kHuggingFace}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::hidden_dropout>(),
       .doc =
           "gpt2: probability that training drops an element of the embedding and of what each layer adds; below 1."},
      {.name = "model.tie_word_embeddings",
       .type = Type::boolean,
       .fallback = "true",
       .aliases = {{"tie_embeddings", kGuides},
                   {"untie_embeddings_and_output_weights", kMegatron, {{"true", "false"}, {"false", "true"}}}},
       .decides = always,
       .field = field<&Plan::model, &ModelPlan::tie_word_embeddings>(),
       .doc = "Whether the output projection is the embedding."},
  };
}

// Keys that are new since digests of plans lie in checkpoints decide only where they are used.
bool is_padded(const Plan& plan) {
  return plan.data.packing == Packing::padded;
}

std::vector<Key> data_source_keys() {
  return {
      {.name = "data.path",
       .type = Type::path,
       .required = true,
       .aliases = {{"data_path", kMegatron}, {"dataset_path", kTitan}, {"dataset", kTitan}},
       .field = field<&Plan::data, &DataPlan::path>(),
       .doc = "Folder that `trireme data prepare` wrote."},
      {.name = "data.tokenizer",
       .type = Type::path,
       .optional = true,
       .aliases = {{"tokenizer_path", kGuides}, {"tokenizer_name", kHuggingFace}},
       .field = field<&Plan::data, &DataPlan::tokenizer>(),
       .doc = "Tokenizer that the data must have been prepared with; unset: the one kept beside the data."},
      {.name = "data.text_field",
       .type = Type::text,
       .optional = true,
       .aliases = {{"text_column", kGuides},
                   {"text_column_name", kHuggingFace},
                   {"dataset_text_field", kHuggingFace},
                   {"training.dataset_text_field", kHuggingFace}},
       .field = field<&Plan::data, &DataPlan::text_field>(),
       .doc = "Field of the JSONL records that must be the prepared one (`data prepare --text-field`); unset: any."},
      {.name = "data.split",
       .type = Type::text,
       .fallback = "train",
       .aliases = {{"train_split", kGuides}, {"dataset_train_split", kHuggingFace}},
       .decides = [](const Plan& plan) { return plan.data.split != "train"; },
       .field = field<&Plan::data, &DataPlan::split>(),
       .doc =
           "What to train on: `train`, or a part by documents, as `train[:1000]`, `train[10%:20%]`, `train[-100:]`."},
      {.name = "data.eval_split",
       .type = Type::text,
       .fallback = "heldout",
       .aliases = {{"validation_split", kGuides}, {"dataset_test_split", kHuggingFace}},
       .field = field<&Plan::data, &DataPlan::eval_split>(),
       .doc = "What to evaluate on, written in the same way."},
      {.name = "data.max_samples",
       .type = Type::integer,
       .optional = true,
       .range = from(1, kMaxSteps),
       .aliases = {{"max_train_samples", kHuggingFace}, {"training.max_train_samples", kHuggingFace}},
       .decides = [](const Plan& plan) { return plan.data.max_samples.has_value(); },
       .field = field<&Plan::data, &DataPlan::max_samples>(),
       .doc = "Only the first so many samples of the training split; unset: all."},
  };
}

std::vector<Key> sample_keys() {
  return {
      {.name = "data.sequence_length",
       .type = Type::integer,
       .fallback = "1024",
       .range = from(1, 1 << 24),
       .aliases = {{"seq_length", kMegatron},
                   {"seq_len", kTitan},
                   {"max_seq_length", kHuggingFace},
                   {"max_length", kHuggingFace},
                   {"block_size", kNanoGpt},
                   {"context_length", kGuides}},
       .decides = always,
       .field = field<&Plan::data, &DataPlan::sequence_length>(),
       .doc = "Tokens of a sample (T)."},
      {.name = "data.packing",
       .type = Type::choice,
       .fallback = "packed",
       .choices = {"packed", "padded"},
       .value_synonyms = {{"true", "packed"}, {"false", "padded"}},
       .aliases = {{"padding",
                    kHuggingFace,
                    {{"max_length", "padded"}, {"longest", "padded"}, {"true", "padded"}, {"false", ""}}},
                   {"training.packing", kHuggingFace}},
       .decides = always,
       .field = field<&Plan::data, &DataPlan::packing>(),
       .doc =
           "packed: documents are joined, with an end mark between them, and cut into samples; padded: each document "
           "is a sample, cut or padded to sequence_length; padding is neither seen nor counted."},
      {.name = "data.document_borders",
       .type = Type::boolean,
       .fallback = "false",
       .aliases = {{"reset_attention_mask", kMegatron}},
       .decides = always,
       .field = field<&Plan::data, &DataPlan::document_borders>(),
       .doc = "packed: whether attention, positions and loss stop at the borders of documents."},
      {.name = "data.add_bos_token",
       .type = Type::boolean,
       .fallback = "true",
       .decides = [](const Plan& plan) { return is_padded(plan) && !plan.data.add_bos_token; },
       .field = field<&Plan::data, &DataPlan::add_bos_token>(),
       .doc =
           "padded: whether a sample begins with what the tokenizer puts before a text (begin-of-text), if anything."},
      {.name = "data.add_eos_token",
       .type = Type::boolean,
       .fallback = "true",
       .decides = [](const Plan& plan) { return is_padded(plan) && !plan.data.add_eos_token; },
       .field = field<&Plan::data, &DataPlan::add_eos_token>(),
       .doc = "padded: whether a sample ends with the end-of-document mark, so that the model learns to end."},
      {.name = "data.pad_token",
       .type = Type::text,
       .optional = true,
       .field = field<&Plan::data, &DataPlan::pad_token>(),
       .doc = "padded: the token to pad with; unset: the tokenizer's pad token, else the end-of-document mark. It "
              "decides no number."},
      {.name = "data.shuffle",
       .type = Type::boolean,
       .fallback = "true",
       .decides = [](const Plan& plan) { return !plan.data.shuffle; },
       .field = field<&Plan::data, &DataPlan::shuffle>(),
       .doc = "Another order of the samples in each epoch; false: the order of the files."},
      {.name = "data.num_workers",
       .type = Type::integer,
       .fallback = "1",
       .range = from(0, 256),
       .aliases = {{"training.dataloader_num_workers", kHuggingFace}, {"training.num_workers", kGuides}},
       .field = field<&Plan::data, &DataPlan::num_workers>(),
       .doc =
           "Threads of a rank that make batches ahead of time, 0: the thread that trains makes them; the order of the "
           "samples does not depend on it."},
      {.name = "data.prefetch_factor",
       .type = Type::integer,
       .fallback = "2",
       .range = from(1, 1024),
       .aliases = {{"training.dataloader_prefetch_factor", kHuggingFace}, {"training.prefetch_factor", kGuides}},
       .field = field<&Plan::data, &DataPlan::prefetch_factor>(),
       .doc = "Steps that each worker makes ahead."},
  };
}

}  // namespace

std::vector<Key> model_and_data_keys() {
  std::vector<Key> rows;
  append(rows, top_keys());
  append(rows, model_size_keys());
  append(rows, model_detail_keys());
  append(rows, data_source_keys());
  append(rows, sample_keys());
  return rows;
}

}  // namespace trireme::config
