#include "train/data_sets.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/manifest.h"
#include "data/pad_token.h"
#include "data/tokenizer.h"

namespace trireme::train {

namespace {

data::DatasetOptions options_of(const config::Plan& plan) {
  const config::DataPlan& data = plan.data;
  data::DatasetOptions options{.sequence_length = data.sequence_length, .document_borders = data.document_borders};
  if (data.packing == config::Packing::packed) return options;
  options.packing = data::Packing::padded;
  options.end_marks = data.add_eos_token;
  const auto tokenizer = data::load_tokenizer((data.path / data::kTokenizerFolder).string());
  options.pad_token = data::pad_token_of(*tokenizer, data.pad_token);
  if (data.add_bos_token) options.prefix = tokenizer->special().before;
  return options;
}

}  // namespace

data::Dataset open_training_data(const config::Plan& plan) {
  const config::DataPlan& data = plan.data;
  const data::Manifest manifest = data::read_manifest(data.path);
  if (!data.text_field.empty() && manifest.options.text_field != data.text_field) {
    throw Error(2250, config::place_of(plan, "data.text_field"),
                "is " + data.text_field + ", but " + data.path.string() + " was prepared from the field " +
                    manifest.options.text_field,
                "prepare it with --text-field " + data.text_field + ", or leave the key away");
  }
  if (!data.tokenizer.empty() && data::load_tokenizer(data.tokenizer.string())->digest() != manifest.tokenizer_digest) {
    throw Error(2251, config::place_of(plan, "data.tokenizer"),
                "is " + data.tokenizer.string() + ", but " + data.path.string() +
                    " was prepared with a tokenizer that gives other ids",
                "prepare the data with --tokenizer " + data.tokenizer.string() + ", or leave the key away");
  }
  data::DatasetOptions options = options_of(plan);
  options.max_samples = static_cast<std::uint64_t>(data.max_samples.value_or(0));
  return data::Dataset(data.path, data.split, options);
}

std::unique_ptr<data::Dataset> open_evaluation_data(const config::Plan& plan, const data::Dataset& training) {
  if (plan.training.eval_samples && *plan.training.eval_samples == 0) return nullptr;
  if (plan.data.eval_split == "heldout" && data::read_manifest(plan.data.path).heldout.tokens == 0) return nullptr;
  data::DatasetOptions options = training.options();
  options.max_samples = 0;
  return std::make_unique<data::Dataset>(plan.data.path, plan.data.eval_split, options);
}

data::LoaderOptions loader_options(const config::Plan& plan, const engine::EngineOptions& engine, int data_rank) {
  return {.micro_batch_size = engine.micro_batch.batch,
          .split = engine.split,
          .data_rank = data_rank,
          .num_workers = plan.data.num_workers,
          .prefetch = plan.data.prefetch_factor};
}

std::vector<std::string> notices_of(const data::Dataset& dataset) {
  const std::uint64_t cut = dataset.num_cut();
  if (cut == 0) return {};
  return {fmt::format("{} of {} samples are cut: their documents are longer than data.sequence_length {}", cut,
                      dataset.num_samples(), dataset.sequence_length())};
}

}  // namespace trireme::train
