// Tokens that are found in the text as they are written, before any splitting: special tokens and words added by users.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // looked for in the normalised text, after all tokens that are not
  bool special = false;      // left out by decode on request
};

// A part of the text: a token, or text between tokens (id -1).
struct TextPart {
  std::size_t begin, end;
  std::int32_t id;
};

// Immutable and thread-safe. Tokens are unique by what is looked for.
class AddedTokenFinder {
 public:
  // keys[i] is what tokens[i] looks like in the text: its content, or its normal form. Not empty.
  AddedTokenFinder(std::vector<AddedToken> tokens, std::vector<std::string> keys);
  bool empty() const { return entries_.empty(); }

  // Leftmost first, the longest of those that begin there. Parts come in order; where a token that took white space
  // overlaps the next match the two overlap, as in Hugging Face's.
  void split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  struct Entry {
    std::string key;
    AddedToken token;
  };
  struct Bucket {
    std::uint32_t begin = 0, end = 0;
  };
  std::vector<Entry> entries_;             // by key
  std::array<Bucket, 256> by_first_byte_;  // ranges of entries_
  int only_first_byte_ = -1;               // where all keys begin alike

  std::size_t next_candidate(std::string_view text, std::size_t from) const;
  const Entry* longest_at(std::string_view text, std::size_t at) const;
};

}  // namespace trireme::data
