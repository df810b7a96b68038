// `trireme convert`: Hugging Face model folders, from runs and from other such folders.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "train/convert.h"

namespace trireme::cli {

int run_convert(Arguments arguments) {
  CLI::App app("Write a model folder that Hugging Face's transformers loads.", "trireme convert");
  train::ConvertOptions options;
  std::string output, dtype;
  app.add_option("SOURCE", options.source,
                 "a run's output_dir, one checkpoints/step-N folder, a Hugging Face folder, or org/name of one in the "
                 "local cache")
      ->required();
  app.add_option("OUTPUT", output, "folder to write; must not exist")->required();
  app.add_option("--dtype", dtype, "element type; unset: as SOURCE has it (a checkpoint: float32)")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  app.add_option("--max-shard-size", options.max_shard_bytes, "bytes of a weights file; with KB, MB, GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
      ->capture_default_str();
  parse(app, arguments);
  options.output = output;
  if (dtype == "float32") options.dtype = DType::f32;
  if (dtype == "bfloat16") options.dtype = DType::bf16;
  if (dtype == "float16") options.dtype = DType::f16;

  const train::Converted written = train::convert(options);
  if (!written.has_tokenizer) log::warn(written.source + " has no tokenizer files: none were written");
  print(fmt::format("{}: {} parameters as {} in {} file{} of {:.1f} MB, from {}\n", output, written.num_parameters,
                    to_string(written.dtype), written.files, written.files == 1 ? "" : "s",
                    static_cast<double>(written.bytes) / 1e6, written.source));
  flush_output();
  return 0;
}

}  // namespace trireme::cli
