// `trireme data`: prepare text, and look at what was prepared.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "data/records.h"
#include "data/text.h"
#include "data/tokenizer.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kDataUsage =
    "usage: trireme data ACTION [arguments]; `trireme data ACTION --help` tells more\n"
    "  prepare   text and JSONL files to token shards\n"
    "  show      samples of prepared data, as text\n";

// A bar that is drawn over itself on a terminal, a line now and then elsewhere.
class ProgressBar {
 public:
  void show(double fraction, std::uint64_t tokens) {
    const auto now = Clock::now();
    const bool last = fraction >= 1;
    if (now - shown_ < (on_terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000)) && !last) {
      return;
    }
    if (last && !drawn_) return;  // done before the first drawing
    shown_ = now;
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const std::string figures =
        fmt::format("{:3.0f} %  {:.2f}M tokens  {:.2f}M tokens/s", 100 * fraction, static_cast<double>(tokens) / 1e6,
                    static_cast<double>(tokens) / 1e6 / std::max(seconds, 1e-3));
    if (!on_terminal_) {
      std::fprintf(stderr, "preparing: %s\n", figures.c_str());
      return;
    }
    const auto filled = static_cast<std::size_t>(fraction * kWidth);
    const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
    std::fprintf(stderr, "\r[%s] %s\x1b[K%s", bar.c_str(), figures.c_str(), last ? "\n" : "");
    std::fflush(stderr);
    line_is_open_ = !last;
  }
  ~ProgressBar() {
    if (line_is_open_) std::fputc('\n', stderr);  // an error's words go below the bar
  }

 private:
  static constexpr std::size_t kWidth = 30;
  bool on_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool drawn_ = false, line_is_open_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
};

void tell_malformed(const data::PrepareReport& report) {
  constexpr std::size_t kMostLines = 20;
  if (report.malformed_count == 0) return;
  log::warn(fmt::format("{} malformed records were left out:", report.malformed_count));
  const std::size_t lines = std::min(kMostLines, report.malformed.size());
  for (std::size_t i = 0; i < lines; ++i) {
    log::warn("  " + report.malformed[i].place + ": " + report.malformed[i].kind);
  }
  if (report.malformed_count > lines) log::warn(fmt::format("  and {} more", report.malformed_count - lines));
}

int run_prepare(Arguments arguments) {
  CLI::App app("Text and JSONL files to token shards with a manifest.", "trireme data prepare");
  data::PrepareOptions options;
  options.num_workers = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  std::vector<std::string> inputs;
  std::string output, on_malformed = "stop";
  app.add_option("INPUT", inputs, ".txt and .jsonl files, and folders of them")->required();
  app.add_option("--output", output, "folder to write")->required();
  app.add_option("--tokenizer", options.tokenizer,
                 "\"bytes\", or a folder with tokenizer.json or with vocab.json and merges.txt")
      ->capture_default_str();
  app.add_option("--held-out", options.held_out, "share of the documents to hold out for evaluation")
      ->check(CLI::Range(0.0, 0.999999))
      ->capture_default_str();
  app.add_option("--text-field,--text-column", options.text_field, "the field of a JSONL object that has the text")
      ->capture_default_str();
  app.add_option("--on-malformed", on_malformed, "at a record that cannot be used: stop, or skip it and tell")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  app.add_option("--workers", options.num_workers, "threads that check and tokenize")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--max-record-bytes", options.max_record_bytes, "longer files and lines are malformed")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--shard-tokens", options.shard_tokens, "tokens of a file")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
      ->capture_default_str();
  parse(app, arguments);
  options.inputs.assign(inputs.begin(), inputs.end());
  options.output = output;
  options.skip_malformed = on_malformed == "skip";

  const Clock::time_point begin = Clock::now();
  data::PrepareReport report;
  {
    ProgressBar bar;
    options.progress = [&](double fraction, std::uint64_t tokens) { bar.show(fraction, tokens); };
    report = data::prepare(options);
  }
  tell_malformed(report);
  print(fmt::format("{} {}: {} documents, {} tokens ({} held out), {} bytes of text, {:.2f} s\n", output,
                    report.was_up_to_date ? "is up to date" : "prepared", report.documents, report.tokens,
                    report.held_out_tokens, report.bytes, std::chrono::duration<double>(Clock::now() - begin).count()));
  flush_output();
  return 0;
}

// Control bytes would be obeyed by a terminal, and a token may end inside a character: both are shown as \xNN.
std::string printable(const std::string& text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t rest = data::find_invalid_utf8(std::string_view(text).substr(i)).value_or(text.size() - i);
    for (const std::size_t end = i + rest; i < end; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
      shown += is_control ? fmt::format("\\x{:02X}", byte) : std::string(1, text[i]);
    }
    if (i < text.size()) shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[i++]));
  }
  return shown;
}

void show_sample(const data::Dataset& dataset, const data::Tokenizer& tokenizer, std::uint64_t sample) {
  if (sample >= dataset.num_samples()) {
    throw Error(2020, "--sample " + std::to_string(sample),
                "the split has " + std::to_string(dataset.num_samples()) + " samples of " +
                    std::to_string(dataset.sequence_length()) + " tokens",
                "samples are numbered from 0");
  }
  const auto length = static_cast<std::uint64_t>(dataset.sequence_length());
  const std::uint64_t begin = sample * length, end = std::min(begin + length, dataset.num_tokens());
  print(fmt::format("--- sample {} of {}: tokens {} to {} of {}\n", sample, dataset.num_samples(), begin, end - 1,
                    dataset.num_tokens()));
  std::string text;
  std::vector<std::int32_t> piece;
  for (const std::int32_t id : dataset.tokens(begin, end)) {
    if (id != tokenizer.end_of_document()) {
      piece.push_back(id);
      continue;
    }
    text += printable(tokenizer.decode(piece.data(), piece.size())) + "\n--- end of document ---\n";
    piece.clear();
  }
  text += printable(tokenizer.decode(piece.data(), piece.size()));
  print(text.ends_with('\n') ? text : text + "\n");
}

int run_show(Arguments arguments) {
  CLI::App app("Samples of prepared data, decoded back to text.", "trireme data show");
  std::string folder, split = "train";
  std::int64_t sequence_length = 128;
  std::vector<std::uint64_t> samples = {0};
  bool raw = false;
  app.add_option("DIR", folder, "what `trireme data prepare` wrote")->required();
  app.add_option("--split", split, "train or heldout")
      ->check(CLI::IsMember({"train", "heldout"}))
      ->capture_default_str();
  app.add_option("--sequence-length", sequence_length, "tokens of a sample")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--sample", samples, "numbers of samples, in the order of the files")->capture_default_str();
  app.add_flag("--raw", raw, "all text of the split, byte for byte, documents one after the other");
  parse(app, arguments);

  const data::Dataset dataset(folder, split, {raw ? 1 : sequence_length, false});
  const auto tokenizer = data::load_tokenizer(dataset.tokenizer_folder().string());
  if (raw) {
    data::for_each_document(dataset, *tokenizer, print);
  } else {
    for (const std::uint64_t sample : samples) show_sample(dataset, *tokenizer, sample);
  }
  flush_output();
  return 0;
}

}  // namespace

int run_data(Arguments arguments) {
  const std::string action = arguments.empty() ? "" : arguments[0];
  if (action == "prepare") return run_prepare(arguments.subspan(1));
  if (action == "show") return run_show(arguments.subspan(1));
  if (action == "--help" || action == "-h") {
    print(kDataUsage);
    return 0;
  }
  throw Error(2010, "command line",
              action.empty() ? "trireme data needs to know what to do" : "trireme data does not know '" + action + "'",
              "write: trireme data prepare, or trireme data show");
}

}  // namespace trireme::cli
