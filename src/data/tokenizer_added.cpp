#include "data/tokenizer_added.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

bool touches_words(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word_character(code_point_at(text, previous_code_point(text, begin)))) return true;
  return end < text.size() && is_word_character(code_point_at(text, end));
}

std::size_t white_space_before(std::string_view text, std::size_t begin, std::size_t limit) {
  while (begin > limit) {
    const std::size_t previous = previous_code_point(text, begin);
    if (!is_white_space(code_point_at(text, previous))) break;
    begin = previous;
  }
  return begin;
}

std::size_t white_space_after(std::string_view text, std::size_t end) {
  while (end < text.size() && is_white_space(code_point_at(text, end))) end += utf8_length(byte_at(text, end));
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, std::vector<std::string> keys) {
  TRIREME_CHECK(tokens.size() == keys.size(), "one key a token");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    TRIREME_CHECK(!keys[i].empty(), "an empty added token");
    entries_.push_back({std::move(keys[i]), std::move(tokens[i])});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
  int first_bytes = 0;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    const unsigned char first = byte_at(entries_[i].key, 0);
    Bucket& bucket = by_first_byte_[first];
    if (bucket.end == 0) {
      bucket.begin = i;
      ++first_bytes;
      only_first_byte_ = first;
    }
    bucket.end = i + 1;
  }
  if (first_bytes != 1) only_first_byte_ = -1;
}

std::size_t AddedTokenFinder::next_candidate(std::string_view text, std::size_t from) const {
  if (from >= text.size()) return text.size();
  if (only_first_byte_ >= 0) {
    const void* found = std::memchr(text.data() + from, only_first_byte_, text.size() - from);
    return found == nullptr ? text.size() : static_cast<const char*>(found) - text.data();
  }
  while (from < text.size() && by_first_byte_[byte_at(text, from)].end == 0) ++from;
  return from;
}

const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  const Bucket bucket = by_first_byte_[byte_at(text, at)];
  auto begin = entries_.begin() + bucket.begin;
  auto end = entries_.begin() + bucket.end;
  const Entry* longest = nullptr;
  for (std::size_t depth = 1; begin != end; ++depth) {
    // All entries in [begin, end) agree with the text on the first `depth` bytes; the shortest comes first.
    if (begin->key.size() == depth) longest = &*begin++;
    if (at + depth == text.size()) break;
    const unsigned char wanted = byte_at(text, at + depth);
    begin = std::lower_bound(begin, end, wanted,
                             [&](const Entry& entry, unsigned char c) { return byte_at(entry.key, depth) < c; });
    end = std::upper_bound(begin, end, wanted,
                           [&](unsigned char c, const Entry& entry) { return c < byte_at(entry.key, depth); });
  }
  return longest;
}

void AddedTokenFinder::split(std::string_view text, std::vector<TextPart>& parts) const {
  parts.clear();
  std::size_t done = 0;        // the end of the last token
  std::size_t spaces_end = 0;  // of the white space that the last token took; not scanned again by those inside it
  for (std::size_t at = next_candidate(text, 0); at < text.size();) {
    const Entry* entry = longest_at(text, at);
    if (entry == nullptr) {
      at = next_candidate(text, at + 1);
      continue;
    }
    std::size_t begin = at, end = at + entry->key.size();
    at = next_candidate(text, end);
    if (entry->token.single_word && touches_words(text, begin, end)) continue;
    if (entry->token.lstrip) begin = std::max(white_space_before(text, begin, done), done);
    if (entry->token.rstrip) {
      if (end > spaces_end) spaces_end = white_space_after(text, end);
      end = spaces_end;
    }
    if (done < begin) parts.push_back({done, begin, -1});
    if (begin < end)
      parts.push_back({begin, end, entry->token.id});  // of white space that another took, nothing is left
    done = end;
  }
  if (done != text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace trireme::data
