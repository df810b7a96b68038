// Where a run's model comes from when it is not the plan's own: the Hugging Face folder of model.path.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "config/plan.h"
#include "data/dataset.h"
#include "engine/model_state.h"

namespace trireme::train {

struct ModelSource {
  std::filesystem::path folder;
  HuggingFaceConfig config;
};

// The folder of plan.model.path, whose sizes go into plan.model (config::fill_from_model); none where the path is
// unset. Errors: as find_model_folder(), read_model_config() and fill_from_model().
std::optional<ModelSource> open_model_source(config::Plan& plan);

// TR2241: the folder has another tokenizer than the data were prepared with. A tokenizer that cannot be read here
// becomes a notice.
void check_tokenizer(const ModelSource& source, const data::Dataset& data, std::vector<std::string>& notices);

// Reads what this rank holds of the weights straight to its places. Moments and padding stay as they are: zero.
void load_weights(const checkpoint::ModelWeights& weights, const engine::ModelState& state);

// Keeps what belongs to the model beside its weights (config.json, tokenizer, chat template, generation_config.json) in
// the run's folder, for export and for a resume without the source.
void keep_model_files(const std::filesystem::path& folder, const std::filesystem::path& run);

// Whether commands that take both take it for a Hugging Face folder (or org/name) rather than for a run's.
bool is_model_folder(const std::string& where);

// A checkpoint and the output_dir of its run.
struct FoundCheckpoint {
  std::filesystem::path folder, run;
};

// where: a run's output_dir (its newest valid checkpoint), its checkpoints folder, or one step's folder. TR5052.
FoundCheckpoint find_checkpoint(const std::filesystem::path& where);

// The plan of the run that wrote it.
config::Plan plan_of_checkpoint(const FoundCheckpoint& found, const checkpoint::Manifest& manifest);

// The model that a checkpoint's weights belong to: of config.json that the run kept, or of its plan's own sizes with
// the vocabulary of its tokenizer.
ModelConfig model_of_checkpoint(const FoundCheckpoint& found, const checkpoint::Manifest& manifest,
                                std::int64_t vocabulary);

// "run/model", where keep_model_files() puts them.
std::filesystem::path model_files_of(const std::filesystem::path& run);

}  // namespace trireme::train
