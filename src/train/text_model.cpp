#include "train/text_model.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
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

TextModel from_folder(const std::string& name) {
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
  text.model = load_forward_model(std::move(chain), [&](const LogicalTensor& tensor, float* out, std::int64_t stride) {
    weights.read(tensor.name, {0, tensor.box.rows(), 0, tensor.box.columns()}, out, stride);
  });
  return text;
}

TextModel from_checkpoint(const FoundCheckpoint& found) {
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
  text.model = load_forward_model(std::move(chain), [&](const LogicalTensor& tensor, float* out, std::int64_t stride) {
    reader.read(tensor.name, tensor.shape, 0, tensor.box.rows(), 0, tensor.box.columns(), out, stride);
  });
  return text;
}

}  // namespace

ForwardModel load_forward_model(Chain chain, const ReadTensor& read) {
  ForwardModel model{std::move(chain), {}, {}};
  std::vector<Tensor> views;
  for (const ParameterSpec& spec : model.chain.parameters) {
    const engine::Memory& memory = model.storage.emplace_back(spec.numel() * 4);
    views.emplace_back(memory.at(0), DType::f32, std::initializer_list<std::int64_t>{spec.rows, spec.columns});
    for (const LogicalTensor& tensor : spec.logical) {
      read(tensor, views.back().as<float>() + tensor.box.row_begin * spec.columns + tensor.box.column_begin,
           spec.columns);
    }
  }
  for (const auto& unit : model.chain.units) {
    auto& own = model.parameters.emplace_back();
    for (const int parameter : unit->parameters()) own.push_back(views[static_cast<std::size_t>(parameter)]);
  }
  return model;
}

TextModel load_text_model(const std::string& where) {
  return is_model_folder(where) ? from_folder(where) : from_checkpoint(find_checkpoint(where));
}

}  // namespace trireme::train
