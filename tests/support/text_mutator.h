// For fuzzers: a text with a few changes of the kinds that readers stumble over, drawn from a seed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::testing {

class TextMutator {
 public:
  // pieces: what the grammar at hand is made of.
  TextMutator(std::uint64_t seed, std::vector<std::string> pieces) : random_(seed), pieces_(std::move(pieces)) {}

  // One to four changes. Empty only where all was cut away.
  std::string mutate(std::string text) {
    for (std::size_t changes = pick(1, 4); changes > 0 && !text.empty(); --changes) change(text);
    return text;
  }
  std::string mutate_one_of(const std::vector<std::string>& texts) { return mutate(texts[pick(0, texts.size() - 1)]); }
  std::size_t pick(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_);
  }

 private:
  void change(std::string& text) {
    const std::size_t at = pick(0, text.size() - 1), length = std::min(pick(1, 40), text.size() - at);
    switch (pick(0, 10)) {
      case 0: text[at] = static_cast<char>(text[at] ^ (1 << pick(0, 7))); break;
      case 1: text[at] = static_cast<char>(pick(0, 255)); break;
      case 2: text.erase(at, length); break;
      case 3: text.resize(at); break;
      case 4: text.insert(pick(0, text.size()), text.substr(at, length)); break;
      case 5: text.insert(at, piece()); break;
      case 6: text.replace(at, std::min<std::size_t>(length, 8), piece()); break;
      case 7: replace_number(text, at, kExtremes[pick(0, std::size(kExtremes) - 1)]); break;
      default: replace_digit(text, at);
    }
  }

  const std::string& piece() { return pieces_[pick(0, pieces_.size() - 1)]; }

  static void replace_number(std::string& text, std::size_t at, std::string_view number) {
    const std::size_t begin = text.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    text.replace(begin, end - begin, number);
  }

  void replace_digit(std::string& text, std::size_t at) {
    const std::size_t digit = text.find_first_of(kDigits, at);
    if (digit != std::string::npos) text[digit] = static_cast<char>('0' + pick(0, 9));
  }

  static constexpr const char* kDigits = "0123456789";
  static constexpr std::string_view kExtremes[] = {"0",
                                                   "1",
                                                   "2",
                                                   "-1",
                                                   "1.5",
                                                   "1e300",
                                                   "1e999",
                                                   "4294967296",
                                                   "4611686018427387904",
                                                   "9223372036854775807",
                                                   "9223372036854775808",
                                                   "18446744073709551615",
                                                   "18446744073709551616"};
  std::mt19937_64 random_;
  std::vector<std::string> pieces_;
};

// How many texts a fuzzer reads: TRIREME_FUZZ_TIMES as many, for a longer search than a suite has time for.
inline int fuzz_rounds(int usual) {
  const char* times = std::getenv("TRIREME_FUZZ_TIMES");
  return times == nullptr ? usual : usual * std::max(1, std::atoi(times));
}

}  // namespace trireme::testing
