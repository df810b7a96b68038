// Unicode's normal form C, as Hugging Face's tokenizers compute it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// Keeps its buffers between calls; one a thread.
//
// tokenizers' tables are those of Unicode 9: combining marks that came later neither move nor compose there. The ids of
// a trained model depend on it, so they do not here either, whatever version utf8proc knows.
class NfcNormalizer {
 public:
  // The text itself where it is in normal form already, else its normal form in a buffer that lives until the next
  // call. Text must be valid UTF-8. Time is linear, but for n log n in the length of one run of combining marks.
  std::string_view normalize(std::string_view text);

 private:
  std::string out_;
  std::vector<char32_t> points_;
  void append_normalized(std::string_view segment);
};

}  // namespace trireme::data
