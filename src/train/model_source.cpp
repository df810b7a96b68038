#include "train/model_source.h"

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/model_export.h"
#include "data/tokenizer.h"
#include "train/resolve.h"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

config::ModelPlan sizes_of(const LlamaConfig& model) {
  return {.path = {},
          .family = {},
          .hidden_size = model.hidden_size,
          .intermediate_size = model.intermediate_size,
          .num_layers = model.num_layers,
          .num_heads = model.num_heads,
          .num_key_value_heads = model.num_key_value_heads,
          .head_dim = model.head_dim,
          .max_position_embeddings = model.max_positions,
          .vocab_size = model.vocabulary,
          .rope_theta = model.rope.theta,
          .rms_norm_eps = model.rms_norm_eps,
          .initializer_range = model.init_std,
          .attention_dropout = model.attention_dropout,
          .hidden_dropout = 0,
          .tie_word_embeddings = model.tie_word_embeddings};
}

config::ModelPlan sizes_of(const Gpt2Config& model) {
  return {.path = {},
          .family = {},
          .hidden_size = model.hidden_size,
          .intermediate_size = model.intermediate_size,
          .num_layers = model.num_layers,
          .num_heads = model.num_heads,
          .num_key_value_heads = model.num_heads,
          .head_dim = model.hidden_size / model.num_heads,
          .max_position_embeddings = model.max_positions,
          .vocab_size = model.vocabulary,
          .rope_theta = 0,  // it has none
          .rms_norm_eps = model.layer_norm_eps,
          .initializer_range = model.init_std,
          .attention_dropout = model.attention_dropout,
          .hidden_dropout = model.residual_dropout,
          .tie_word_embeddings = model.tie_word_embeddings};
}

}  // namespace

std::optional<ModelSource> open_model_source(config::Plan& plan) {
  if (plan.model.path.empty()) return std::nullopt;
  ModelSource source{.folder = checkpoint::find_model_folder(plan.model.path), .config = {}};
  source.config = checkpoint::read_model_config(source.folder);
  config::ModelPlan sizes = std::visit([](const auto& model) { return sizes_of(model); }, source.config.model);
  sizes.family = source.config.model_type;
  config::fill_from_model(plan, sizes, (source.folder / "config.json").string());
  return source;
}

void check_tokenizer(const ModelSource& source, const data::Dataset& data, std::vector<std::string>& notices) {
  std::error_code ignored;
  const bool has_one =
      fs::exists(source.folder / "tokenizer.json", ignored) ||
      (fs::exists(source.folder / "vocab.json", ignored) && fs::exists(source.folder / "merges.txt", ignored));
  if (!has_one) {
    notices.push_back(source.folder.string() + " has no tokenizer to compare with the data's");
    return;
  }
  std::string digest;
  try {
    digest = data::load_tokenizer(source.folder.string())->digest();
  } catch (const Error& error) {
    notices.push_back("the tokenizer of " + source.folder.string() +
                      " was not compared with the data's: " + error.message());
    return;
  }
  if (digest != data.tokenizer_digest()) {
    throw Error(2241, source.folder.string(), "has another tokenizer than the data were prepared with",
                "prepare the data with the model's own: trireme data prepare --tokenizer " + source.folder.string());
  }
}

void load_weights(const checkpoint::ModelWeights& weights, const engine::ModelState& state) {
  state.for_each_piece([&](const engine::ModelState::HeldPiece& piece) {
    if (piece.kind != engine::StateKind::master) return;
    weights.read(piece.tensor.name, piece.box, piece.data, piece.row_stride);
  });
}

bool is_model_folder(const std::string& source) {
  std::error_code ignored;
  if (!fs::exists(source, ignored)) return true;  // org/name, or the error that says so
  return fs::is_regular_file(fs::path(source) / "config.json", ignored) ||
         fs::is_regular_file(fs::path(source) / "model.safetensors", ignored);
}

// A step's folder has a manifest; a run's folder has checkpoints/.
FoundCheckpoint find_checkpoint(const fs::path& where) {
  const fs::path at = fs::absolute(where).lexically_normal();
  if (fs::exists(at / "manifest.json")) return {at, at.parent_path().parent_path()};
  const fs::path checkpoints = fs::exists(at / "checkpoints") ? at / "checkpoints" : at;
  std::vector<std::string> rejected;
  const auto candidates = checkpoint::list(checkpoints, &rejected);
  if (candidates.empty()) {
    throw Error(
        5052, where.string(),
        "no valid checkpoint here" + (rejected.empty() ? std::string() : "; the last reason: " + rejected.back()),
        "give the output_dir of a run that saved, or one of its checkpoints/step-N folders");
  }
  return {candidates.front().folder, checkpoints.parent_path()};
}

config::Plan plan_of_checkpoint(const FoundCheckpoint& found, const checkpoint::Manifest& manifest) {
  // Not named as JSON: the manifest holds it as YAML text.
  return config::parse_plan(manifest.plan_yaml, found.folder.string() + "/manifest.json: plan", {});
}

ModelConfig model_of_checkpoint(const FoundCheckpoint& found, const checkpoint::Manifest& manifest,
                                std::int64_t vocabulary) {
  config::Plan plan = plan_of_checkpoint(found, manifest);
  if (!plan.model.path.empty()) plan.model.path = model_files_of(found.run).string();
  const std::optional<ModelSource> source = open_model_source(plan);
  plan.training.max_steps = 1;  // resolve() needs some; nothing is trained here
  plan.training.global_batch_size.reset();
  return resolve(plan, {vocabulary, 1}, 1, std::nullopt, source ? &source->config.model : nullptr).model;
}

fs::path model_files_of(const fs::path& run) {
  return run / "model";
}

void keep_model_files(const fs::path& folder, const fs::path& run) {
  const fs::path kept = model_files_of(run);
  std::error_code ignored;
  if (fs::equivalent(folder, kept, ignored)) return;
  fs::create_directories(kept);
  write_file_atomic(kept / "config.json", read_file(folder / "config.json"));
  for (const std::string& name : checkpoint::companion_files(folder)) {
    write_file_atomic(kept / name, read_file(folder / name));
  }
}

}  // namespace trireme::train
