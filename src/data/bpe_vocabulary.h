// Vocabulary, merges and added tokens while they are read: names to ids, with every rule of Hugging Face's numbering.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe_spec.h"
#include "data/tokenizer_json.h"

namespace trireme::data {

class VocabularyReader {
 public:
  // vocab: an object of name -> id; it must outlive this. spec.alphabet.kind is set. Fills spec.tokens and the ids of
  // spec.alphabet. Errors TR4104, TR4106.
  VocabularyReader(const JsonPlace& vocab, BpeSpec& spec);

  std::optional<std::int32_t> id(std::string_view name) const;        // of the model's vocabulary
  std::optional<std::int32_t> any_id(const std::string& name) const;  // or of an added token

  // Appends a merge to spec.merges. describe_place is called for an error only (TR4107).
  void add_merge(std::string_view left, std::string_view right, const std::function<std::string()>& describe_place);

  // "left right", as in merges.txt; a line that begins with #version is skipped, as Hugging Face's does anywhere.
  void add_merge_line(std::string_view line, const std::function<std::string()>& describe_place);

  // Appends to spec.added. The id must be the one by which Hugging Face's tokenizers would know the token: that of the
  // vocabulary if it is there, else the next free one (TR4112).
  void add_token(AddedToken token, const std::string& place);

 private:
  BpeSpec& spec_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::unordered_map<std::string, std::int32_t> added_;
  std::int64_t highest_added_ = -1;
  std::string joined_;

  void add_vocabulary_entry(std::string_view name, const JsonPlace& id, std::int64_t limit);
  void find_symbols();
};

}  // namespace trireme::data
