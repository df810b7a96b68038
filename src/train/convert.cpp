#include "train/convert.h"

#include <algorithm>

#include "base/file.h"
#include "checkpoint/model_export.h"
#include "data/tokenizer.h"
#include "models/model.h"
#include "train/model_source.h"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> companions_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : checkpoint::companion_files(folder)) files.push_back(folder / name);
  return files;
}

Converted write(const ConvertOptions& options, const Chain& chain, checkpoint::ModelExport model, std::string source) {
  model.parameters = chain.parameters;
  model.max_shard_bytes = options.max_shard_bytes;
  const checkpoint::ExportedModel written = checkpoint::export_model(options.output, model);
  const bool has_tokenizer = std::any_of(model.companions.begin(), model.companions.end(), [](const fs::path& file) {
    return file.filename().string().starts_with("tokenizer.") || file.filename() == "vocab.json";
  });
  return {.source = std::move(source),
          .num_parameters = chain.num_parameters(),
          .bytes = written.bytes,
          .files = written.files,
          .dtype = model.dtype,
          .has_tokenizer = has_tokenizer};
}

Converted convert_folder(const ConvertOptions& options) {
  const fs::path folder = checkpoint::find_model_folder(options.source);
  const HuggingFaceConfig config = checkpoint::read_model_config(folder);
  const Chain chain = make_chain(config.model, DType::f32);
  const checkpoint::ModelWeights weights(folder, chain.parameters);
  checkpoint::ModelExport model;
  const DType own = weights.dtype() == DType::f64 ? DType::f32 : weights.dtype();
  model.dtype = options.dtype.value_or(own);
  model.config_json = checkpoint::with_dtype(read_file(folder / "config.json"), model.dtype, folder / "config.json");
  model.companions = companions_of(folder);
  model.read = [&](const LogicalTensor& tensor, float* out) {
    weights.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, out, tensor.box.columns());
  };
  return write(options, chain, std::move(model), folder.string());
}

Converted convert_checkpoint(const ConvertOptions& options) {
  const FoundCheckpoint found = find_checkpoint(options.source);
  const checkpoint::Reader reader(found.folder);
  const auto tokenizer = data::load_tokenizer((found.run / "tokenizer").string());
  const ModelConfig config = model_of_checkpoint(found, reader.manifest(), tokenizer->vocabulary());
  const Chain chain = make_chain(config, DType::f32);
  const fs::path kept = model_files_of(found.run);
  std::error_code ignored;
  const bool has_source = fs::is_regular_file(kept / "config.json", ignored);
  checkpoint::ModelExport model;
  model.dtype = options.dtype.value_or(DType::f32);
  const std::int64_t end = tokenizer->end_of_document();
  model.config_json = has_source
                          ? checkpoint::with_dtype(read_file(kept / "config.json"), model.dtype, kept / "config.json")
                          : to_hugging_face_config(config, model.dtype, {.bos = end, .eos = end, .pad = -1});
  model.companions = companions_of(has_source ? kept : found.run / "tokenizer");
  model.read = [&](const LogicalTensor& tensor, float* out) {
    reader.read(tensor.name, tensor.shape, 0, tensor.box.rows(), 0, tensor.box.columns(), out, tensor.box.columns());
  };
  return write(options, chain, std::move(model), found.folder.string());
}

}  // namespace

Converted convert(const ConvertOptions& options) {
  return is_model_folder(options.source) ? convert_folder(options) : convert_checkpoint(options);
}

}  // namespace trireme::train
