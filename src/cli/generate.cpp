// `trireme generate`: text from a checkpoint.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "train/generator.h"

namespace trireme::cli {

int run_generate(Arguments arguments) {
  CLI::App app("Continue a prompt with a trained model.", "trireme generate");
  std::string checkpoint, prompt;
  train::SamplingOptions sampling;
  app.add_option("--checkpoint,CHECKPOINT", checkpoint, "a run's output_dir, or one checkpoints/step-N folder")
      ->required();
  app.add_option("--prompt", prompt, "text to continue");
  app.add_option("--max-tokens", sampling.max_tokens, "tokens to write at most")
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
  parse(app, arguments);

  train::Generator generator(checkpoint);
  print(prompt);
  generator.generate(prompt, sampling, [](std::string_view piece) {
    print(piece);
    flush_output();
  });
  print("\n");
  flush_output();
  return 0;
}

}  // namespace trireme::cli
