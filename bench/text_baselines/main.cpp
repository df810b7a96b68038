// Bits per byte of the held-out text: by the model of a finished run, by `gzip -9`, and by a bigram table counted on
// the tokens that the run consumed. All three code the same text; the model and the table code the same tokens of it,
// with the same end-of-document marks and the same first context in each sample.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <string>

#include "base/error.h"
#include "config/plan.h"
#include "data/dataset.h"
#include "data/text.h"
#include "data/tokenizer.h"
#include "text_baselines/coding.h"
#include "text_baselines/gzip.h"
#include "text_baselines/run_record.h"

namespace trireme::baselines {
namespace {

namespace fs = std::filesystem;

Consumed need_consumed(const RunRecord& record, const fs::path& run) {
  if (record.consumed) return *record.consumed;
  throw Error(2050, run.string(),
              "metrics.jsonl has no event with data_position: the run did not finish, or did not train on the "
              "whole split, packed and shuffled",
              "let it finish, with `resume: auto` and the same command");
}

Evaluation need_evaluation(const RunRecord& record, const data::Dataset& heldout, const Coded& bigram,
                           const fs::path& run) {
  if (!record.evaluation) {
    throw Error(2051, run.string(), "metrics.jsonl has no evaluation of the whole held-out text",
                "train with training.eval_interval set and training.eval_samples unset");
  }
  if (record.evaluation->tokens != bigram.tokens || record.evaluation->bytes != heldout.num_bytes()) {
    throw Error(2052, run.string(),
                "the model was evaluated on " + std::to_string(record.evaluation->tokens) + " tokens of " +
                    std::to_string(record.evaluation->bytes) + " bytes, but the held-out text has " +
                    std::to_string(bigram.tokens) + " of " + std::to_string(heldout.num_bytes()),
                "name the data that the run was trained on with --data");
  }
  return *record.evaluation;
}

int compare(const fs::path& run, fs::path folder, bool check) {
  const RunRecord record = read_run_record(run / "metrics.jsonl");
  if (folder.empty()) folder = config::load_plan(run / "config.resolved.yaml", {}).data.path;
  const Consumed consumed = need_consumed(record, run);
  const data::DatasetOptions options{consumed.sequence_length, consumed.document_borders};
  const data::Dataset heldout(folder, "heldout", options);
  const auto bytes = static_cast<double>(heldout.num_bytes());

  const data::Dataset train(folder, "train", options);
  const data::SampleOrder order{consumed.seed, train.num_samples(), true};
  const Coded bigram = code_by_bigram(train, order, consumed.data_position, heldout);
  const Evaluation evaluation = need_evaluation(record, heldout, bigram, run);
  const auto tokenizer = data::load_tokenizer(heldout.tokenizer_folder().string());
  const std::uint64_t packed = gzip_size([&](const auto& take) { data::for_each_document(heldout, *tokenizer, take); });

  const double by_model = evaluation.nats / std::numbers::ln2 / bytes;
  const double by_gzip = 8 * static_cast<double>(packed) / bytes;
  const double by_bigram = bigram.bits / bytes;
  std::printf("model    %.4f bits per byte  after step %lld, %llu tokens, %.0f bytes of held-out text\n", by_model,
              static_cast<long long>(evaluation.step), static_cast<unsigned long long>(evaluation.tokens), bytes);
  std::printf("gzip -9  %.4f bits per byte  %llu bytes\n", by_gzip, static_cast<unsigned long long>(packed));
  std::printf(
      "bigram   %.4f bits per byte  Witten-Bell, counted on the %llu samples of %lld tokens that the run took\n",
      by_bigram, static_cast<unsigned long long>(consumed.data_position),
      static_cast<long long>(consumed.sequence_length));
  if (!check || (by_model < by_gzip && by_model < by_bigram)) return 0;
  std::fprintf(stderr, "the model is not below both\n");
  return 1;
}

int run(int argc, char** argv) {
  CLI::App app("Bits per byte of the held-out text: model, gzip -9, bigram table.", "trireme_text_baselines");
  std::string run, folder;
  bool check = false;
  app.add_option("--run,RUN", run, "output_dir of a finished run")->required();
  app.add_option("--data", folder, "prepared data; the run's own data.path if not given");
  app.add_flag("--check", check, "exit 1 unless the model is below both");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return compare(run, folder, check);
}

}  // namespace
}  // namespace trireme::baselines

int main(int argc, char** argv) {
  try {
    return trireme::baselines::run(argc, argv);
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "trireme_text_baselines: error %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme_text_baselines: error TR1000: %s\n", error.what());
    return 1;
  }
}
