// `trireme generate`: text from a trained model.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/torch_library.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "train/device.h"
#include "train/generator.h"

namespace trireme::cli {

namespace {

// One prompt a line, or in a .jsonl file the "prompt" of each. Blank lines are none.
std::vector<std::string> read_prompts(const std::string& file) {
  const bool is_jsonl = file.ends_with(".jsonl");
  std::istringstream lines(read_file(file));
  std::vector<std::string> prompts;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = file + ":" + std::to_string(++number);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (!is_jsonl) {
      prompts.push_back(line);
      continue;
    }
    const nlohmann::json object = parse_json_object(line, place, 2271);
    const auto prompt = object.find("prompt");
    if (prompt == object.end() || !prompt->is_string()) {
      throw Error(2271, place, "has no text named \"prompt\"", "a line is {\"prompt\": \"...\"}");
    }
    prompts.push_back(prompt->get<std::string>());
  }
  if (prompts.empty()) throw Error(2271, file, "holds no prompt", "write one prompt a line");
  return prompts;
}

// Lines in the order of the prompts, each as soon as it and those before it are done.
class OrderedLines {
 public:
  explicit OrderedLines(std::span<const std::string> prompts) : prompts_(prompts), texts_(prompts.size()) {}

  void take(std::size_t prompt, std::string_view piece, bool ended) {
    texts_[prompt].text += piece;
    texts_[prompt].ended = ended;
    for (; printed_ < texts_.size() && texts_[printed_].ended; ++printed_) {
      const nlohmann::ordered_json line{{"prompt", prompts_[printed_]}, {"text", texts_[printed_].text}};
      print(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      flush_output();
    }
  }

 private:
  struct Text {
    std::string text;
    bool ended = false;
  };
  std::span<const std::string> prompts_;
  std::vector<Text> texts_;
  std::size_t printed_ = 0;
};

}  // namespace

int run_generate(Arguments arguments) {
  CLI::App app("Continue prompts with a trained model.", "trireme generate");
  std::string model, prompt, file, device = "auto";
  std::int64_t together = 8;
  train::SamplingOptions sampling;
  app.add_option("MODEL,--checkpoint,--model", model,
                 "a run's output_dir, one checkpoints/step-N folder, a Hugging Face folder, or org/name of one in the "
                 "local cache")
      ->required();
  auto* one = app.add_option("--prompt", prompt, "text to continue; its continuation is printed as it comes");
  app.add_option("--prompts", file,
                 "file of prompts, one a line (.jsonl: {\"prompt\": ...}); prints {\"prompt\", \"text\"} for each")
      ->excludes(one);
  app.add_option("--batch-size", together, "prompts of the file that are continued at the same time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--max-tokens,--max-new-tokens", sampling.max_tokens, "tokens to write at most")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "only the k likeliest tokens; 0: off")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "smallest set of tokens with this probability")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "equal seeds give equal text")->capture_default_str();
  app.add_option("--device", device, "auto, cpu, cuda (auto: cuda where there is a device)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  parse(app, arguments);

  const std::vector<std::string> prompts = file.empty() ? std::vector{prompt} : read_prompts(file);
  const bool on_device = train::uses_device(device);
  std::optional<TorchLoading> meanwhile;
  if (!on_device) meanwhile.emplace();
  const train::Generator generator(model, on_device ? engine::MemoryKind::device : engine::MemoryKind::host);
  if (file.empty()) {
    print(prompt);
    generator.generate(prompts, sampling, 1, [](std::size_t, std::string_view piece, bool) {
      print(piece);
      flush_output();
    });
    print("\n");
    flush_output();
    return 0;
  }
  OrderedLines lines(prompts);
  generator.generate(prompts, sampling, together,
                     [&](std::size_t which, std::string_view piece, bool ended) { lines.take(which, piece, ended); });
  return 0;
}

}  // namespace trireme::cli
