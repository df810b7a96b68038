#include "train/text_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "kernels/device.h"
#include "models/model.h"
#include "train/model_source.h"

namespace trireme::train {

namespace fs = std::filesystem;

namespace {

void add_end(std::vector<std::int32_t>& ends, std::int32_t id) {
  if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
}

void check_vocabulary(const std::string& place, const data::Tokenizer& tokenizer, const Chain& chain) {
  if (tokenizer.vocabulary() <= chain.vocabulary) return;
  throw Error(2240, place,
              "its tokenizer has " + std::to_string(tokenizer.vocabulary()) + " ids, and its model only " +
                  std::to_string(chain.vocabulary),
              "use the tokenizer that belongs to the model");
}

TextModel from_folder(const std::string& name, engine::MemoryKind memory) {
  const fs::path folder = checkpoint::find_model_folder(name);
  Chain chain = make_chain(checkpoint::read_model_config(folder).model, DType::f32);
  const checkpoint::ModelWeights weights(folder, chain.parameters);
  TextModel text;
  text.tokenizer = data::load_tokenizer(folder.string());
  check_vocabulary(name, *text.tokenizer, chain);
  const data::SpecialTokens& special = text.tokenizer->special();
  text.before = special.before;
  text.ends = checkpoint::read_end_tokens(folder);
  if (special.end) add_end(text.ends, *special.end);
  const ReadTensor read = [&](const LogicalTensor& tensor, float* out, std::int64_t stride) {
    weights.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, out, stride);
  };
  text.model = load_forward_model(std::move(chain), read, memory);
  return text;
}

TextModel from_checkpoint(const FoundCheckpoint& found, engine::MemoryKind memory) {
  const checkpoint::Reader reader(found.folder);
  const checkpoint::Manifest& manifest = reader.manifest();
  const fs::path tokenizer = found.run / "tokenizer", files = model_files_of(found.run);
  TextModel text;
  text.tokenizer = data::load_tokenizer(tokenizer.string());
  if (text.tokenizer->digest() != manifest.tokenizer_digest) {
    throw Error(5053, tokenizer.string(), "is not the tokenizer that the checkpoint was trained with",
                "restore the run's own tokenizer folder");
  }
  const config::Plan plan = plan_of_checkpoint(found, manifest);
  const std::int32_t mark = text.tokenizer->end_of_document();
  std::error_code ignored;
  if (fs::is_regular_file(files / "config.json", ignored)) text.ends = checkpoint::read_end_tokens(files);
  add_end(text.ends, mark);
  if (plan.data.packing == config::Packing::packed) {
    text.before = {mark};
  } else if (plan.data.add_bos_token) {
    text.before = text.tokenizer->special().before;
  }
  Chain chain = make_chain(model_of_checkpoint(found, manifest, text.tokenizer->vocabulary()), DType::f32);
  check_vocabulary(found.folder.string(), *text.tokenizer, chain);
  const ReadTensor read = [&](const LogicalTensor& tensor, float* out, std::int64_t stride) {
    reader.read(tensor.name, tensor.shape, 0, tensor.box.rows(), 0, tensor.box.columns(), out, stride);
  };
  text.model = load_forward_model(std::move(chain), read, memory);
  return text;
}

}  // namespace

ForwardModel load_forward_model(Chain chain, const ReadTensor& read, engine::MemoryKind memory) {
  ForwardModel model{std::move(chain), memory, {}, {}};
  std::vector<Tensor> views;
  for (const ParameterSpec& spec : model.chain.parameters) {
    engine::Memory values(spec.numel() * static_cast<std::int64_t>(sizeof(float)));
    for (const LogicalTensor& tensor : spec.logical) {
      const std::int64_t first = tensor.box.row_begin * spec.columns + tensor.box.column_begin;
      read(tensor, reinterpret_cast<float*>(values.at(0)) + first, spec.columns);
    }
    if (memory == engine::MemoryKind::device) {
      const engine::Memory on_host = std::exchange(values, engine::Memory(values.bytes(), memory));
      kernels::copy_now(values.at(0), on_host.at(0), on_host.bytes());
    }
    views.emplace_back(values.at(0), DType::f32, std::initializer_list<std::int64_t>{spec.rows, spec.columns});
    model.storage.push_back(std::move(values));
  }
  for (const auto& unit : model.chain.units) {
    auto& own = model.parameters.emplace_back();
    for (const int parameter : unit->parameters()) own.push_back(views[static_cast<std::size_t>(parameter)]);
  }
  return model;
}

TextModel load_text_model(const std::string& where, engine::MemoryKind memory) {
  return is_model_folder(where) ? from_folder(where, memory) : from_checkpoint(find_checkpoint(where), memory);
}

}  // namespace trireme::train
