// Unicode's normal forms and lower case, as Hugging Face's tokenizers compute them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

enum class UnicodeForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// Keeps its buffers between calls; one a thread.
//
// tokenizers' tables are those of Unicode 9: what came later neither decomposes, moves nor composes there. The ids of a
// trained model depend on it, so it does not here either, whatever version utf8proc knows.
class UnicodeNormalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form) : form_(form) {}

  // The text itself where it is in normal form already, else its normal form in a buffer that lives until the next
  // call. Text must be valid UTF-8. Time is linear, but for n log n in the length of one run of combining marks.
  std::string_view normalize(std::string_view text);

 private:
  UnicodeForm form_;
  std::string out_;
  std::vector<char32_t> points_;
  void append_normalized(std::string_view segment);
};

// Each code point by itself (a final sigma is not special), by the tables of Unicode 17. Appends to out.
void append_lower_case(std::string_view text, std::string& out);

}  // namespace trireme::data
