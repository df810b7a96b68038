#include "data/bpe_vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

// Byte-level vocabularies spell each byte as one printable character: itself where it is printable in Latin-1, else the
// next of U+0100, U+0101, ...
class ByteAlphabet {
 public:
  ByteAlphabet() {
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
      names_[byte].resize(4);
      names_[byte].resize(write_utf8(character, names_[byte].data()));
      bytes_[character] = byte;
    }
  }
  const std::string& name(int byte) const { return names_[byte]; }

  // The bytes that a name spells; none where it has other characters.
  std::optional<std::string> spelt(std::string_view name) const {
    std::string bytes;
    for (std::size_t at = 0; at < name.size(); at += utf8_length(static_cast<unsigned char>(name[at]))) {
      const char32_t character = code_point_at(name, at);
      if (character >= bytes_.size() || bytes_[character] < 0) return std::nullopt;
      bytes.push_back(static_cast<char>(bytes_[character]));
    }
    return bytes;
  }

 private:
  std::array<std::string, 256> names_;
  std::vector<int> bytes_ = std::vector<int>(0x180, -1);
};

std::string in_quotes(std::string_view text) {
  return "\"" + std::string(text.substr(0, 100)) + (text.size() > 100 ? "...\"" : "\"");
}

void place_token(BpeSpec& spec, std::int32_t id, BpeToken token) {
  if (spec.tokens.size() <= static_cast<std::size_t>(id)) spec.tokens.resize(id + 1);
  spec.tokens[id] = std::move(token);
}

}  // namespace

VocabularyReader::VocabularyReader(const JsonPlace& vocab, BpeSpec& spec) : spec_(spec) {
  if (!vocab.value().is_object()) vocab.wrong_type("an object of token -> id");
  const auto count = static_cast<std::int64_t>(vocab.value().size());
  if (count == 0) throw Error(4106, vocab.place(), "the vocabulary is empty");
  // Gaps are legal, but memory must not be at the mercy of one number.
  const std::int64_t limit = std::min<std::int64_t>(kMaxVocabulary, 4 * count + 65'536);
  ids_.reserve(count);
  for (const auto& [name, id] : vocab.value().items()) {
    add_vocabulary_entry(name, JsonPlace(id, vocab.place() + "[" + in_quotes(name) + "]"), limit);
  }
  find_symbols();
}

void VocabularyReader::add_vocabulary_entry(std::string_view name, const JsonPlace& id, std::int64_t limit) {
  const std::int64_t value = id.integer();
  if (value < 0 || value >= limit) {
    throw Error(4106, id.place(), "id " + std::to_string(value) + " is not in 0 .. " + std::to_string(limit - 1),
                "ids count from 0; the bound follows from the number of tokens");
  }
  if (static_cast<std::size_t>(value) < spec_.tokens.size() && spec_.tokens[value].exists) {
    throw Error(4106, id.place(), "id " + std::to_string(value) + " belongs to another token too");
  }
  static const ByteAlphabet alphabet;
  std::optional<std::string> bytes;
  if (spec_.alphabet.kind == AlphabetKind::bytes) bytes = alphabet.spelt(name);
  const bool is_spelt = spec_.alphabet.kind == AlphabetKind::characters || bytes.has_value();
  BpeToken token{.exists = true, .in_model = is_spelt && !name.empty()};
  token.bytes = bytes ? std::move(*bytes) : std::string(name);
  place_token(spec_, static_cast<std::int32_t>(value), std::move(token));
  // The key lives in the JSON document.
  ids_.emplace(name, static_cast<std::int32_t>(value));
}

void VocabularyReader::find_symbols() {
  AlphabetSpec& symbols = spec_.alphabet;
  if (symbols.kind == AlphabetKind::bytes) {
    const ByteAlphabet alphabet;
    for (int byte = 0; byte < 256; ++byte) symbols.byte_ids[byte] = id(alphabet.name(byte)).value_or(kNoToken);
    return;
  }
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string name = "<0x00>";
  for (int byte = 0; byte < 256; ++byte) {
    name[3] = digits[byte >> 4], name[4] = digits[byte & 15];
    symbols.byte_ids[byte] = id(name).value_or(kNoToken);
  }
  for (const auto& [token, token_id] : ids_) {
    if (token.empty() || utf8_length(static_cast<unsigned char>(token[0])) != token.size()) continue;
    symbols.characters.emplace_back(code_point_at(token, 0), token_id);
  }
}

std::optional<std::int32_t> VocabularyReader::id(std::string_view name) const {
  const auto found = ids_.find(name);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int32_t> VocabularyReader::any_id(const std::string& name) const {
  const auto found = added_.find(name);
  if (found == added_.end()) return id(name);
  return found->second;
}

void VocabularyReader::add_merge(std::string_view left, std::string_view right,
                                 const std::function<std::string()>& describe_place) {
  joined_.assign(left).append(right);
  const auto known = [&](std::string_view name) {
    const std::optional<std::int32_t> found = id(name);
    if (!found || name.empty()) {
      throw Error(4107, describe_place(),
                  "the merge of " + in_quotes(left) + " and " + in_quotes(right) + " needs the token " +
                      in_quotes(name) + ", which the vocabulary lacks",
                  "vocabulary and merges do not belong together");
    }
    return *found;
  };
  spec_.merges.push_back({known(left), known(right), known(joined_)});
  if (spec_.alphabet.kind == AlphabetKind::bytes) return;
  spec_.joins.emplace_back(code_point_at(left, previous_code_point(left, left.size())), code_point_at(right, 0));
}

void VocabularyReader::add_merge_line(std::string_view line, const std::function<std::string()>& describe_place) {
  if (line.starts_with("#version")) return;
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    throw Error(4107, describe_place(), "a merge is two tokens with one space between, not " + in_quotes(line));
  }
  add_merge(line.substr(0, space), line.substr(space + 1), describe_place);
}

void VocabularyReader::add_token(AddedToken token, const std::string& place) {
  if (token.content.empty()) throw Error(4112, place, "an added token has no content");
  const std::int64_t vocabulary_size = static_cast<std::int64_t>(ids_.size());
  const std::optional<std::int32_t> known = id(token.content);
  const std::int64_t expected = known ? *known : std::max(highest_added_ + 1, vocabulary_size);
  if (token.id != expected) {
    throw Error(4112, place,
                "the added token " + in_quotes(token.content) + " has id " + std::to_string(token.id) +
                    ", but Hugging Face's tokenizers number it " + std::to_string(expected),
                "an added token has its id of the vocabulary, or the next free one, in the order of the file");
  }
  if (expected >= kMaxVocabulary) throw Error(4112, place, "id " + std::to_string(expected) + " is too large");
  if (!added_.emplace(token.content, token.id).second) {
    throw Error(4112, place, "the added token " + in_quotes(token.content) + " stands twice");
  }
  const auto index = static_cast<std::size_t>(token.id);
  if (!known && index < spec_.tokens.size() && spec_.tokens[index].exists) {
    throw Error(4112, place, "the id " + std::to_string(token.id) + " of " + in_quotes(token.content) + " is taken");
  }
  // Text, not spelling: it is written back as it was found. One of the vocabulary stays what it is there.
  if (!known) place_token(spec_, token.id, {.bytes = token.content, .exists = true});
  highest_added_ = std::max<std::int64_t>(highest_added_, token.id);
  spec_.added.push_back(std::move(token));
}

}  // namespace trireme::data
