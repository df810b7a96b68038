// The last part of prepare(): finished parts become the files of the two splits, and the manifest.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "data/inputs.h"
#include "data/manifest.h"
#include "data/part.h"
#include "data/prepare.h"
#include "data/tokenizer.h"

namespace trireme::data {

// One bar over both halves of the work; its end is when the manifest is there.
class Progress {
 public:
  explicit Progress(std::function<void(double, std::uint64_t)> report) : report_(std::move(report)) {}
  void tokenized(double share, std::uint64_t tokens) const { tell(0.9 * share, tokens); }
  void assembled(double share, std::uint64_t tokens) const { tell(0.9 + 0.09 * share, tokens); }
  void done(std::uint64_t tokens) const { tell(1, tokens); }

 private:
  void tell(double fraction, std::uint64_t tokens) const {
    if (report_) report_(fraction, tokens);
  }
  std::function<void(double, std::uint64_t)> report_;
};

// All of the manifest but the splits. Error TR4021 where no input has a usable document.
Manifest describe_parts(const PrepareOptions& options, const std::vector<InputFile>& inputs,
                        const std::vector<PartRecord>& parts, const Tokenizer& tokenizer);

// Replaces what the output folder holds, the manifest last. tokenizer_copy is moved into it.
void assemble(const PrepareOptions& options, const std::vector<InputFile>& inputs, const Tokenizer& tokenizer,
              const PartStore& store, const std::filesystem::path& tokenizer_copy, const Progress& progress,
              Manifest& manifest);

}  // namespace trireme::data
