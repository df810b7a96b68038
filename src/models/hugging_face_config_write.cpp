#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/hugging_face_config.h"
#include "models/hugging_face_rope.h"

namespace trireme {

namespace {

using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(2261, "config.json", why,
              "Hugging Face's transformers has no model that computes this; keep the weights as a checkpoint");
}

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu_tanh: return "gelu_pytorch_tanh";
    case Activation::gelu: return "gelu";
    case Activation::relu: return "relu";
  }
  return "";
}

// The narrowest family that has what the model has.
std::string family_of(const LlamaConfig& model) {
  if (model.one_plus_norm_weights) {
    return !model.post_norms ? "gemma" : model.query_key_norms ? "gemma3_text" : "gemma2";
  }
  if (model.query_key_norms) return "qwen3";
  if (model.qkv_bias && !model.attention_output_bias) return "qwen2";
  return model.windows.empty() ? "llama" : "mistral";
}

std::string architecture_of(const std::string& family) {
  if (family == "gemma3_text") return "Gemma3ForCausalLM";
  std::string name = family + "ForCausalLM";
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

// Fields of the layers' windows. max: the window that all layers with one have.
void write_windows(const LlamaConfig& model, const std::string& family, ordered_json& json) {
  if (family == "llama" || family == "gemma") return;
  const std::int64_t window = model.windows.empty() ? 0 : *std::max_element(model.windows.begin(), model.windows.end());
  json["sliding_window"] = window > 0 ? ordered_json(window) : ordered_json(nullptr);
  if (family == "mistral") return;
  if (family != "gemma2" && family != "gemma3_text") json["use_sliding_window"] = window > 0;
  ordered_json types = ordered_json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool slides = !model.windows.empty() && model.windows[static_cast<std::size_t>(layer)] > 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  json["layer_types"] = types;
}

void write_gemma(const LlamaConfig& model, const std::string& family, ordered_json& json) {
  if (family == "gemma2" || family == "gemma3_text") {
    json["hidden_activation"] = name_of(model.activation);
    // The number whose root it was, without the rounding of the root.
    const double scalar = 1 / (model.attention_scale * model.attention_scale);
    const double nearest = std::round(scalar);
    json["query_pre_attn_scalar"] = 1 / std::sqrt(nearest) == model.attention_scale ? nearest : scalar;
    const auto cap = [](double value) { return value == 0 ? ordered_json(nullptr) : ordered_json(value); };
    json["attn_logit_softcapping"] = cap(model.attention_soft_cap);
    json["final_logit_softcapping"] = cap(model.logit_soft_cap);
  }
}

void write_model(const LlamaConfig& model, const std::string& family, ordered_json& json) {
  json["vocab_size"] = model.vocabulary;
  json["hidden_size"] = model.hidden_size;
  json["intermediate_size"] = model.intermediate_size;
  json["num_hidden_layers"] = model.num_layers;
  json["num_attention_heads"] = model.num_heads;
  json["num_key_value_heads"] = model.num_key_value_heads;
  json["head_dim"] = model.head_dim;
  json["max_position_embeddings"] = model.max_positions;
  json["rms_norm_eps"] = model.rms_norm_eps;
  json["initializer_range"] = model.init_std;
  json["tie_word_embeddings"] = model.tie_word_embeddings;
  json["attention_dropout"] = model.attention_dropout;
  json["hidden_act"] = name_of(model.activation);
  if (family != "qwen2" && family != "mistral") json["attention_bias"] = model.qkv_bias;
  if (family == "llama") json["mlp_bias"] = model.mlp_bias;
  json["rope_theta"] = model.rope.theta;
  json["rope_scaling"] = rope_scaling_json(model.rope.scaling);
  if (family == "gemma3_text") {
    const Rope& windowed = model.windowed_rope.value_or(model.rope);
    if (windowed.scaling.kind != RopeScaling::Kind::none) refuse("rotary positions of windows are stretched");
    json["rope_local_base_freq"] = windowed.theta;
  }
  write_windows(model, family, json);
  write_gemma(model, family, json);
}

void write_model(const Gpt2Config& model, ordered_json& json) {
  json["vocab_size"] = model.vocabulary;
  json["n_positions"] = model.max_positions;
  json["n_embd"] = model.hidden_size;
  json["n_layer"] = model.num_layers;
  json["n_head"] = model.num_heads;
  json["n_inner"] = model.intermediate_size;
  json["activation_function"] = model.activation == Activation::gelu_tanh ? "gelu_new" : name_of(model.activation);
  json["layer_norm_epsilon"] = model.layer_norm_eps;
  json["initializer_range"] = model.init_std;
  json["tie_word_embeddings"] = model.tie_word_embeddings;
  json["scale_attn_weights"] = model.scale_attention;
  json["scale_attn_by_inverse_layer_idx"] = model.scale_attention_by_layer;
  json["embd_pdrop"] = model.embedding_dropout;
  json["attn_pdrop"] = model.attention_dropout;
  json["resid_pdrop"] = model.residual_dropout;
}

// As parse_hugging_face_config() would give it: nothing left to be derived. How the loss is chunked is no part of it.
LlamaConfig spelled_out(LlamaConfig model) {
  if (model.head_dim == 0) model.head_dim = model.hidden_size / model.num_heads;
  if (model.attention_scale != 0 && 1 / std::sqrt(static_cast<double>(model.head_dim)) == model.attention_scale &&
      !model.post_norms) {
    model.attention_scale = 0;
  }
  if (model.attention_scale == 0 && model.post_norms) {
    model.attention_scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  }
  if (std::all_of(model.windows.begin(), model.windows.end(), [](std::int64_t w) { return w == 0; })) {
    model.windows.clear();
  }
  model.loss_chunk_tokens = LlamaConfig().loss_chunk_tokens;
  model.deterministic = true;
  model.float_gradients = false;
  return model;
}

Gpt2Config spelled_out(Gpt2Config model) {
  if (model.intermediate_size == 0) model.intermediate_size = 4 * model.hidden_size;
  model.loss_chunk_tokens = Gpt2Config().loss_chunk_tokens;
  model.deterministic = true;
  model.float_gradients = false;
  return model;
}

}  // namespace

std::string to_hugging_face_config(const ModelConfig& model, DType dtype, const TokenIds& tokens) {
  ModelConfig whole = std::visit([](const auto& known) { return ModelConfig(spelled_out(known)); }, model);
  ordered_json json;
  if (auto* llama = std::get_if<LlamaConfig>(&whole)) {
    const std::string family = family_of(*llama);
    if (family == "gemma3_text" && !llama->windowed_rope) llama->windowed_rope = llama->rope;
    json["architectures"] = {architecture_of(family)};
    json["model_type"] = family;
    write_model(*llama, family, json);
  } else {
    json["architectures"] = {"GPT2LMHeadModel"};
    json["model_type"] = "gpt2";
    write_model(std::get<Gpt2Config>(whole), json);
  }
  json["torch_dtype"] = to_string(dtype);
  if (tokens.bos >= 0) json["bos_token_id"] = tokens.bos;
  if (tokens.eos >= 0) json["eos_token_id"] = tokens.eos;
  if (tokens.pad >= 0) json["pad_token_id"] = tokens.pad;
  const std::string text = json.dump(2) + "\n";
  if (parse_hugging_face_config(text, "config.json").model != whole) {
    refuse("the model mixes what no one family has");
  }
  return text;
}

}  // namespace trireme
