#include "train/tiny_run.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "data/prepare.h"
#include "support/temporary_folder.h"
#include "train/whole_state.h"

namespace trireme::testing {

namespace {

// Sentences of a small vocabulary, so that there is something to learn; 40 documents.
void write_text(const std::filesystem::path& folder) {
  const char* words[] = {"the", "sea", "ship", "oars", "wind", "captain", "rows", "north", "under", "a", "grey", "sky"};
  std::mt19937 random(7);
  std::filesystem::create_directories(folder);
  std::ofstream out(folder / "tiny.jsonl");
  for (int document = 0; document < 40; ++document) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += std::string(words[random() % 12]) + (i % 9 == 8 ? ".\\n" : " ");
    out << "{\"text\": \"" << text << "\"}\n";
  }
}

}  // namespace

const std::filesystem::path& tiny_data() {
  static const TemporaryFolder folder;
  static const std::filesystem::path tokens = [] {
    write_text(folder.path() / "text");
    data::PrepareOptions options;
    options.inputs = {folder.path() / "text"};
    options.output = folder.path() / "tokens";
    options.held_out = 0.1;
    data::prepare(options);
    return options.output;
  }();
  return tokens;
}

const ShortDocuments& short_documents() {
  static const TemporaryFolder folder;
  static const ShortDocuments documents = [] {
    ShortDocuments made{.folder = folder.path() / "tokens"};
    std::mt19937 random(8);
    std::ofstream out(folder.path() / "short.jsonl");
    for (int document = 0; document < 50; ++document) {
      std::string& text = made.texts.emplace_back();
      for (std::size_t size = 1 + random() % 40; size > 0; --size) text += "rows of oars, "[random() % 14];
      out << "{\"body\": \"" << text << "\"}\n";
    }
    out.close();
    data::PrepareOptions options;
    options.inputs = {folder.path() / "short.jsonl"};
    options.output = made.folder;
    options.text_field = "body";
    data::prepare(options);
    return made;
  }();
  return documents;
}

config::Plan tiny_plan(const TinyRun& run) {
  const std::string yaml =
      "name: tiny\n"
      "output_dir: " +
      run.output_dir.string() +
      "\n"
      "model: {" +
      std::string(run.gpt2 ? "family: gpt2, hidden_dropout: 0.2, attention_dropout: 0.3, "
                           : "family: llama, intermediate_size: 48, num_key_value_heads: 2, ") +
      "hidden_size: 32, num_layers: 2, num_heads: 4,\n"
      "        max_position_embeddings: 16, tie_word_embeddings: " +
      (run.tied ? "true" : "false") +
      "}\n"
      "data: {path: " +
      (run.data.empty() ? tiny_data() : run.data).string() +
      ", sequence_length: 16}\n"
      "training: {" +
      (run.steps > 0 ? "max_steps: " + std::to_string(run.steps) + ", " : std::string()) +
      "micro_batch_size: " + std::to_string(run.micro_batch_size) +
      ", global_batch_size: " + std::to_string(run.micro_batches * run.micro_batch_size) +
      ", device: cpu, learning_rate: 3e-3, warmup_steps: 3, lr_scheduler: cosine, gradient_clipping: 1.0, seed: 11,\n"
      "           reduce_each_micro_batch: " +
      (run.reduce_each_micro_batch ? "true" : "false") + ", mixed_precision: '" + (run.bf16 ? "bf16" : "no") + "'}\n";
  return config::parse_plan(yaml, "tiny.yaml", run.overrides);
}

TinyRun with(TinyRun run, const std::vector<std::string>& overrides) {
  run.overrides.insert(run.overrides.end(), overrides.begin(), overrides.end());
  return run;
}

TinyRun with_strategy(TinyRun run, const char* strategy, int ranks, const std::vector<std::string>& more) {
  run.ranks = ranks;
  run.overrides = {std::string("distributed.strategy=") + strategy};
  run.overrides.insert(run.overrides.end(), more.begin(), more.end());
  return run;
}

TinyResult train_tiny(const TinyRun& run) {
  if (run.output_dir.empty()) {
    const TemporaryFolder folder;
    TinyRun inside = run;
    inside.output_dir = folder.path() / "run";
    return train_tiny(inside);
  }
  const config::Plan plan = tiny_plan(run);
  auto comms = comm::make_local(run.ranks);
  WholeState whole;
  std::mutex mutex;
  std::exception_ptr failure;
  TinyResult result;

  const auto rank_main = [&](int rank) {
    std::atomic<bool> stop{false};
    train::TrainerOptions options{.comm = comms[rank].get(), .stop = &stop, .console = false};
    options.on_batches = [&](const data::StepBatches& batches, std::int64_t step) {
      stop = run.stop_at && run.stop_at(rank, step);
      const std::lock_guard lock(mutex);
      for (const auto& ids : batches.samples) {
        result.samples[step].insert(result.samples[step].end(), ids.begin(), ids.end());
      }
    };
    options.on_step = [&](const monitor::StepRecord& record) {
      if (rank != 0) return;
      result.losses.push_back(record.loss);
      result.learning_rates.push_back(record.learning_rate);
      result.gradient_norms.push_back(record.gradient_norm);
    };
    train::Trainer trainer(plan, options);
    const train::RunResult ended = trainer.run();
    {
      const std::lock_guard lock(mutex);
      whole.add(trainer.engine().state());
    }
    if (rank == 0) {
      result.stopped = ended.stopped;
      result.last_step = ended.last_step;
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(run.ranks));
  for (int rank = 0; rank < run.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        rank_main(rank);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (failure == nullptr) failure = std::current_exception();
        }
        for (auto& comm : comms) comm->abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
  for (auto& [step, ids] : result.samples) std::sort(ids.begin(), ids.end());
  result.weights_digest = whole.digest();
  result.all_ranks_equal = whole.equal();
  return result;
}

}  // namespace trireme::testing
