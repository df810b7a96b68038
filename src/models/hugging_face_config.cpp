#include "models/hugging_face_config.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "models/hugging_face_fields.h"
#include "models/hugging_face_rope.h"

namespace trireme {

namespace {

using Fields = HuggingFaceFields;

constexpr std::int64_t kMaxSize = std::int64_t{1} << 24, kMaxLayers = 10000, kMaxHeads = 65536;

// What a family has when config.json does not say otherwise.
struct Family {
  const char* model_type;
  const char* architecture;  // without "ForCausalLM" or "Model"
  std::int64_t max_positions;
  std::int64_t num_key_value_heads;  // 0: as num_heads
  std::int64_t head_dim;             // 0: C / H
  bool is_gemma;
};

constexpr Family kFamilies[] = {
    {"llama", "Llama", 2048, 0, 0, false},           {"mistral", "Mistral", 131072, 8, 0, false},
    {"qwen2", "Qwen2", 32768, 32, 0, false},         {"qwen3", "Qwen3", 32768, 32, 128, false},
    {"gemma", "Gemma", 8192, 16, 256, true},         {"gemma2", "Gemma2", 8192, 4, 256, true},
    {"gemma3_text", "Gemma3", 131072, 4, 256, true},
};

Activation activation_of(const Fields& fields, const std::string& key, const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  if (name == "relu") return Activation::relu;
  fields.refuse(key, "is \"" + name.substr(0, 80) + "\": known are silu, gelu, gelu_new, gelu_pytorch_tanh and relu");
}

void check_architectures(Fields& fields, const std::vector<std::string>& known) {
  for (const std::string& name : fields.texts("architectures")) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      fields.refuse("architectures", "has " + name.substr(0, 80) + ", which is no model of text alone");
    }
  }
}

// What every config.json may have beside the model.
void pass_common(Fields& fields) {
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "is_decoder", "use_bidirectional_attention",
                          "use_mrope", "rope_interleaved", "tie_encoder_decoder"}) {
    if (fields.boolean(key, false)) fields.refuse(key, "is true");
  }
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (fields.has(key)) fields.refuse(key, "is there: quantized weights are no weights to train");
  }
  fields.ignore({"model_type",
                 "architectures",
                 "transformers_version",
                 "dtype",
                 "torch_dtype",
                 "use_cache",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "_name_or_path",
                 "name_or_path",
                 "auto_map",
                 "_commit_hash",
                 "pretraining_tp",
                 "cache_implementation",
                 "_attn_implementation",
                 "attn_implementation",
                 "_attn_implementation_autoset",
                 "is_llama_config",
                 "transformers.js_config",
                 "unsloth_version",
                 "unsloth_fixed",
                 "output_attentions",
                 "output_hidden_states",
                 "return_dict",
                 "return_dict_in_generate",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "task_specific_params",
                 "finetuning_task",
                 "tokenizer_class",
                 "prefix",
                 "torchscript",
                 "use_bfloat16",
                 "pruned_heads",
                 "chunk_size_feed_forward",
                 "gradient_checkpointing"});
  // Of text generation, as older files carry it.
  fields.ignore({"max_length",
                 "min_length",
                 "do_sample",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "num_beams",
                 "num_beam_groups",
                 "num_return_sequences",
                 "repetition_penalty",
                 "length_penalty",
                 "early_stopping",
                 "diversity_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "remove_invalid_values",
                 "exponential_decay_length_penalty",
                 "output_scores",
                 "tf_legacy_loss",
                 "cross_attention_hidden_size"});
}

void read_sizes(Fields& fields, const Family& family, LlamaConfig& model) {
  model.vocabulary = fields.integer("vocab_size", 2, kMaxSize);
  model.hidden_size = fields.integer("hidden_size", 1, kMaxSize);
  model.intermediate_size = fields.integer("intermediate_size", 1, kMaxSize);
  model.num_layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  model.num_heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  model.num_key_value_heads =
      fields.integer("num_key_value_heads", 1, kMaxHeads,
                     family.num_key_value_heads > 0 ? family.num_key_value_heads : model.num_heads);
  fields.require(model.num_heads % model.num_key_value_heads == 0, "num_key_value_heads",
                 "is " + std::to_string(model.num_key_value_heads) + ", which does not divide the " +
                     std::to_string(model.num_heads) + " heads");
  const auto head_dim = fields.find_integer("head_dim", 2, kMaxHeads);
  fields.require(head_dim || family.head_dim > 0 || model.hidden_size % model.num_heads == 0, "hidden_size",
                 "is " + std::to_string(model.hidden_size) + ", no multiple of " + std::to_string(model.num_heads) +
                     " heads, and there is no head_dim");
  model.head_dim = head_dim.value_or(family.head_dim > 0 ? family.head_dim : model.hidden_size / model.num_heads);
  fields.require(model.head_dim % 2 == 0 && model.head_dim > 0, "head_dim",
                 "is " + std::to_string(model.head_dim) + ", but rotary positions turn pairs");
  model.max_positions = fields.integer("max_position_embeddings", 1, kMaxSize, family.max_positions);
  model.rms_norm_eps = fields.number("rms_norm_eps", 1e-30, 1, 1e-6);
  model.init_std = fields.number("initializer_range", 0, 1e3, 0.02);
  model.tie_word_embeddings = fields.boolean("tie_word_embeddings", family.is_gemma);
  model.attention_dropout = fields.number("attention_dropout", 0, 0.999999, 0);
}

// Gemma's releases say "gelu" and mean its tanh approximation; transformers reads them so, too.
Activation gated_activation(Fields& fields, const std::string& type) {
  const std::string first = fields.text("hidden_act", ""), second = fields.text("hidden_activation", "");
  if (type == "gemma") {
    const auto read = [&](const std::string& name) {
      return name == "gelu" || name.empty() ? "gelu_pytorch_tanh" : name;
    };
    if (!second.empty() &&
        activation_of(fields, "hidden_activation", read(second)) != activation_of(fields, "hidden_act", read(first))) {
      fields.refuse("hidden_activation", "is \"" + second.substr(0, 80) + "\", but hidden_act is another");
    }
    return activation_of(fields, "hidden_act", read(first));
  }
  if (type == "gemma2" || type == "gemma3_text") {
    return activation_of(fields, "hidden_activation", second.empty() ? "gelu_pytorch_tanh" : second);
  }
  return activation_of(fields, "hidden_act", first.empty() ? "silu" : first);
}

void read_biases(Fields& fields, const std::string& type, LlamaConfig& model) {
  if (type == "qwen2") {
    model.qkv_bias = true;
  } else if (type != "mistral") {
    model.qkv_bias = model.attention_output_bias = fields.boolean("attention_bias", false);
  }
  if (type == "llama") model.mlp_bias = fields.boolean("mlp_bias", false);
  for (const char* key : {"attention_bias", "mlp_bias"}) {  // where the family's code does not look at it
    if (fields.boolean(key, false) && !(model.qkv_bias || model.mlp_bias)) fields.refuse(key, "is true in a " + type);
  }
}

// Which layers see a window only, by layer_types or by the family's rule.
void read_windows(Fields& fields, const std::string& type, LlamaConfig& model) {
  const bool is_qwen = type == "qwen2" || type == "qwen3", is_gemma = type == "gemma2" || type == "gemma3_text";
  if (type == "llama" || type == "gemma") return;
  // A family's own default is 4096, also where the field is not there; null is none.
  std::int64_t window = 0;
  const bool said_none = !fields.has("sliding_window") && fields.is_there("sliding_window");
  if (!said_none) window = fields.integer("sliding_window", 1, kMaxSize, 4096);
  if (is_qwen && !fields.boolean("use_sliding_window", false)) window = 0;
  const std::int64_t from = is_qwen ? fields.integer("max_window_layers", 0, kMaxLayers, 28) : 0;
  std::int64_t pattern = 2;
  if (type == "gemma3_text") {
    pattern = fields.integer("sliding_window_pattern", 1, kMaxLayers,
                             fields.integer("_sliding_window_pattern", 1, kMaxLayers, 6));
  }
  const std::vector<std::string> types = fields.texts("layer_types");
  fields.require(types.empty() || std::ssize(types) == model.num_layers, "layer_types",
                 "has " + std::to_string(types.size()) + " layers, not " + std::to_string(model.num_layers));
  if (type == "mistral" && !types.empty()) fields.refuse("layer_types", "is there, in a mistral");
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    bool slides = is_gemma ? (layer + 1) % pattern != 0 : layer >= from;
    if (!types.empty()) {
      const std::string& name = types[static_cast<std::size_t>(layer)];
      slides = name == "sliding_attention";
      if (!slides && name != "full_attention") fields.refuse("layer_types", "has \"" + name.substr(0, 80) + "\"");
      fields.require(!slides || window > 0, "layer_types", "has sliding_attention, but there is no sliding_window");
    }
    windows.push_back(slides ? window : 0);
  }
  const bool any = std::any_of(windows.begin(), windows.end(), [](std::int64_t w) { return w > 0; });
  if (any) model.windows = std::move(windows);
}

void read_gemma(Fields& fields, const std::string& type, LlamaConfig& model) {
  model.one_plus_norm_weights = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  if (type == "gemma") return;
  model.post_norms = true;
  model.query_key_norms = type == "gemma3_text";
  model.attention_scale = 1 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-6, 1e9, 256));
  const auto cap = [&](const char* key, double fallback) {
    const bool said_none = fields.is_there(key) && !fields.has(key);
    return fields.number(key, 1e-6, 1e9, said_none || type == "gemma3_text" ? 0 : fallback);
  };
  model.attention_soft_cap = cap("attn_logit_softcapping", 50);
  model.logit_soft_cap = cap("final_logit_softcapping", 30);
  if (type == "gemma3_text" && model.attention_soft_cap != 0) {  // its code does not look at it
    fields.refuse("attn_logit_softcapping", "is given, in a gemma3_text");
  }
}

LlamaConfig read_llama(Fields& fields, const Family& family) {
  const std::string type = family.model_type;
  check_architectures(fields, {std::string(family.architecture) + "ForCausalLM",
                               std::string(family.architecture) + (type == "gemma3_text" ? "TextModel" : "Model")});
  LlamaConfig model;
  read_sizes(fields, family, model);
  model.activation = gated_activation(fields, type);
  read_biases(fields, type, model);
  model.query_key_norms = type == "qwen3";
  if (family.is_gemma) read_gemma(fields, type, model);
  read_windows(fields, type, model);
  if (type == "gemma3_text") {
    const TwoRopes ropes = read_two_ropes(fields, model.max_positions, model.head_dim);
    model.rope = ropes.full;
    model.windowed_rope = ropes.windowed;
  } else {
    model.rope = read_rope(fields, 10000, model.max_positions, model.head_dim);
  }
  // Written by transformers also where the family has no use for it.
  fields.ignore({"sliding_window", "use_sliding_window", "max_window_layers"});
  return model;
}

Gpt2Config read_gpt2(Fields& fields) {
  check_architectures(fields, {"GPT2LMHeadModel", "GPT2Model"});
  Gpt2Config model;
  const auto size = [&](const char* key, const char* other, std::int64_t high) {
    return fields.has(key) || !fields.has(other) ? fields.integer(key, 1, high) : fields.integer(other, 1, high);
  };
  model.vocabulary = fields.integer("vocab_size", 2, kMaxSize);
  model.hidden_size = size("n_embd", "hidden_size", kMaxSize);
  model.num_layers = size("n_layer", "num_hidden_layers", kMaxLayers);
  model.num_heads = size("n_head", "num_attention_heads", kMaxHeads);
  model.max_positions = size("n_positions", "max_position_embeddings", kMaxSize);
  fields.require(
      model.hidden_size % model.num_heads == 0, "n_head",
      "is " + std::to_string(model.num_heads) + ", which does not divide n_embd " + std::to_string(model.hidden_size));
  model.intermediate_size = fields.integer("n_inner", 1, kMaxSize, 4 * model.hidden_size);
  model.activation = activation_of(fields, "activation_function", fields.text("activation_function", "gelu_new"));
  model.layer_norm_eps = fields.number("layer_norm_epsilon", 1e-30, 1, 1e-5);
  model.init_std = fields.number("initializer_range", 0, 1e3, 0.02);
  model.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  model.scale_attention = fields.boolean("scale_attn_weights", true);
  model.scale_attention_by_layer = fields.boolean("scale_attn_by_inverse_layer_idx", false);
  model.embedding_dropout = fields.number("embd_pdrop", 0, 0.999999, 0.1);
  model.attention_dropout = fields.number("attn_pdrop", 0, 0.999999, 0.1);
  model.residual_dropout = fields.number("resid_pdrop", 0, 0.999999, 0.1);
  // Another order of the same operations; n_ctx is the older name of n_positions.
  fields.ignore({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                 "summary_proj_to_labels", "summary_first_dropout"});
  return model;
}

}  // namespace

HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& place) {
  const nlohmann::json object = parse_json_object(text, place, 5060);
  Fields fields(object, place);
  const std::string type = fields.text("model_type", "");
  fields.require(!type.empty(), "model_type", "is missing");
  if (fields.has("text_config")) fields.refuse("model_type", "is \"" + type.substr(0, 80) + "\": not of text alone");
  HuggingFaceConfig config{.model_type = type, .model = {}};
  pass_common(fields);
  if (type == "gpt2") {
    config.model = read_gpt2(fields);
  } else {
    const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                     [&](const Family& known) { return type == known.model_type; });
    if (family == std::end(kFamilies)) fields.refuse("model_type", "is \"" + type.substr(0, 80) + "\"");
    config.model = read_llama(fields, *family);
  }
  fields.finish();
  return config;
}

}  // namespace trireme
