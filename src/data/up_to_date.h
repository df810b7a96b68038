// Whether a folder already holds what prepare() would make.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/inputs.h"
#include "data/manifest.h"
#include "data/prepare.h"

namespace trireme::data {

// Sizes and times of the files that a manifest was made from. Equal stamps save reading them again.
class Stamps {
 public:
  Stamps(const std::vector<InputFile>& inputs, const std::vector<std::filesystem::path>& tokenizer_files,
         std::filesystem::path output);
  // Of these files and the manifest that lies in the output folder now.
  bool match(const std::filesystem::path& saved) const;
  void save(const std::filesystem::path& file) const;

 private:
  std::string text() const;
  std::string files_;
  std::filesystem::path output_;
};

std::string input_name(const InputFile& input, const std::filesystem::path& output);  // as the manifest has it
PreparedOptions prepared_options(const PrepareOptions& options);

// Milliseconds where the saved stamps match; else inputs of equal size are read and compared by digest, and the stamps
// saved anew if all is equal.
bool is_up_to_date(const Manifest& manifest, const PrepareOptions& options, const std::vector<InputFile>& inputs,
                   const Stamps& stamps, const std::filesystem::path& saved_stamps);

}  // namespace trireme::data
