// What is done to the text before it is cut into words: the steps of tokenizer.json's normalizer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/pretokenizer_regex.h"
#include "data/tokenizer_forms.h"

namespace trireme::data {

struct NormalizerStep {
  enum class Kind : std::uint8_t {
    form,       // a normal form of Unicode
    lowercase,  // code point by code point
    strip,      // white space at the ends
    prepend,    // content before a text that is not empty
    replace,    // each match of pattern by content
  };
  Kind kind = Kind::form;
  UnicodeForm form = UnicodeForm::nfc;
  bool left = false, right = false;  // strip
  std::string pattern;               // replace: text, or a regex; not empty
  bool is_regex = false;
  std::string content;
  std::string place;  // for errors
};

// Immutable and thread-safe; each thread needs a Scratch.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps);  // Error TR4108 for a bad regex
  bool empty() const { return steps_.empty(); }

  struct StepScratch {
    std::optional<UnicodeNormalizer> form;
    std::optional<SplitRegex::Scratch> regex;
    std::string text, stand_ins;
  };
  using Scratch = std::vector<StepScratch>;
  Scratch make_scratch() const;

  struct Result {
    std::string_view text;
    bool keeps_front;  // its first character stands for the first of the input: none was cut off or fused before it
    std::size_t front = 0;  // bytes at its begin that stand for the first character of the input, as far as is known
  };
  // The result lives in the scratch, or is the text itself where nothing changes. Text must be valid UTF-8. Error
  // TR4111 as SplitRegex::find, and where the text grows without measure.
  Result run(std::string_view text, Scratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
  std::vector<std::optional<SplitRegex>> regexes_;
  Result run_step(std::size_t step, const Result& before, std::size_t limit, StepScratch& own) const;
  Result replace(std::size_t step, const Result& before, std::size_t limit, StepScratch& own) const;
  void check_size(std::size_t step, std::size_t size, std::size_t limit) const;
};

}  // namespace trireme::data
