#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/bpe_alphabet.h"
#include "data/bpe_cache.h"
#include "data/bpe_cuts.h"
#include "data/bpe_spec.h"
#include "data/pretokenizer.h"
#include "data/tokenizer_added.h"
#include "data/tokenizer_decoder.h"
#include "data/tokenizer_normalizer.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

std::string normal_form(const Normalizer& normalizer, const std::string& text) {
  Normalizer::Scratch scratch = normalizer.make_scratch();
  return std::string(normalizer.run(text, scratch).text);
}

AddedTokenFinder make_finder(const BpeSpec& spec, const Normalizer& normalizer, bool normalized) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> keys;
  std::unordered_map<std::string, std::size_t> seen;
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    std::string key = normalized ? normal_form(normalizer, token.content) : token.content;
    if (key.empty()) {
      throw Error(4112, spec.place, "nothing is left of the added token \"" + token.content + "\" after normalisation");
    }
    if (const auto [same, is_new] = seen.emplace(key, tokens.size()); !is_new) {
      throw Error(4112, spec.place,
                  "the added tokens \"" + tokens[same->second].content + "\" and \"" + token.content +
                      "\" are the same after normalisation");
    }
    tokens.push_back(token);
    keys.push_back(std::move(key));
  }
  return {std::move(tokens), std::move(keys)};
}

// An added token that is looked for in the normalised text comes back in that form, so that a space which belongs to it
// there is not lost.
TokenDecoder make_decoder(const BpeSpec& spec, const Normalizer& normalizer) {
  std::vector<std::string> texts;
  texts.reserve(spec.tokens.size());
  for (const BpeToken& token : spec.tokens) texts.push_back(token.bytes);
  if (spec.alphabet.kind == AlphabetKind::characters) {
    for (const AddedToken& token : spec.added) {
      if (token.normalized) texts[token.id] = normal_form(normalizer, token.content);
    }
  }
  return {spec.decoder, std::move(texts)};
}

// Whether a text may be cut beside an unknown character. Not where it is left out, since its neighbours then meet; nor
// where merges have byte tokens or the unknown token as their parts.
bool unknown_stays_alone(const BpeSpec& spec, const Alphabet& alphabet) {
  if (!alphabet.keeps_all()) return false;
  std::vector<bool> stands_in(spec.tokens.size());
  if (spec.alphabet.unknown) stands_in[*spec.alphabet.unknown] = true;
  for (const std::int32_t id : spec.alphabet.byte_ids) {
    if (id != kNoToken) stands_in[id] = true;
  }
  return std::none_of(spec.merges.begin(), spec.merges.end(),
                      [&](const Merge& merge) { return stands_in[merge.left] || stands_in[merge.right]; });
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSpec spec)
      : spec_(std::move(spec)),
        digest_(digest_of(spec_)),
        alphabet_(spec_.alphabet),
        merges_(spec_.merges),
        joins_(spec_.joins),
        cut_at_unknown_(unknown_stays_alone(spec_, alphabet_)),
        normalizer_(spec_.normalizer),
        added_(make_finder(spec_, normalizer_, false)),
        added_normalized_(make_finder(spec_, normalizer_, true)),
        pretokenizer_(spec_.steps),
        decoder_(make_decoder(spec_, normalizer_)) {
    if (spec_.ignore_merges) {
      for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
        const BpeToken& token = spec_.tokens[id];
        if (token.in_model) whole_words_.emplace(token.bytes, static_cast<std::int32_t>(id));
      }
    }
    std::vector<Merge>().swap(spec_.merges);  // merges_ and joins_ have them
    std::vector<std::pair<char32_t, char32_t>>().swap(spec_.joins);
    warn_of_missing_symbols();
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    Lease scratch(*this);
    std::string replaced;
    if (valid_utf8_prefix(text) != text.size()) {
      replaced = replace_invalid_utf8(text);
      text = replaced;
    }
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3);
    scratch->ids = &ids;
    added_.split(text, scratch->parts);
    for (const TextPart& part : scratch->parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0, *scratch);
      }
    }
    return ids;
  }

  void decode_next(std::int32_t id, bool skip_special, DecodeState& state, std::string& text) const override {
    if (!has(id)) {
      throw Error(4110, spec_.place, "no token has id " + std::to_string(id),
                  "decode with the tokenizer that made these ids");
    }
    if (!(skip_special && is_special_[id])) decoder_.append(id, state, text);
  }

  bool has(std::int32_t id) const override { return id >= 0 && id < vocabulary() && spec_.tokens[id].exists; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(spec_.tokens.size()); }
  std::int32_t end_of_document() const override { return spec_.end_of_document; }
  const SpecialTokens& special() const override { return spec_.special; }
  const std::string& digest() const override { return digest_; }
  const std::string& kind() const override { return kind_; }

 private:
  // What one encode needs beside the text; kept for the next one, so that the cache of words stays warm.
  class Scratch final : public WordSink {
   public:
    explicit Scratch(const BpeTokenizer& owner)
        : owner_(owner), normalizer(owner.normalizer_.make_scratch()), pieces(owner.pretokenizer_.make_scratch()) {}
    void word(std::string_view bytes) override { owner_.encode_word(bytes, *this); }

   private:
    const BpeTokenizer& owner_;

   public:
    Normalizer::Scratch normalizer;
    Pretokenizer::Scratch pieces;
    std::vector<TextPart> parts, normalized_parts;
    WordCache cache;
    std::vector<std::int32_t> symbols;
    MergeTable::Workspace workspace;
    std::vector<std::int32_t>* ids = nullptr;
  };

  // Takes a Scratch that nobody uses, or makes one; gives it back.
  class Lease {
   public:
    explicit Lease(const BpeTokenizer& owner) : owner_(owner) {
      {
        const std::lock_guard lock(owner.idle_mutex_);
        if (!owner.idle_.empty()) {
          scratch_ = std::move(owner.idle_.back());
          owner.idle_.pop_back();
        }
      }
      if (!scratch_) scratch_ = std::make_unique<Scratch>(owner);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(owner_.idle_mutex_);
      owner_.idle_.push_back(std::move(scratch_));
    }
    Scratch& operator*() const { return *scratch_; }
    Scratch* operator->() const { return scratch_.get(); }

   private:
    const BpeTokenizer& owner_;
    std::unique_ptr<Scratch> scratch_;
  };

  BpeSpec spec_;
  std::string kind_ = "bpe";
  std::string digest_;
  Alphabet alphabet_;
  MergeTable merges_;
  JoinTable joins_;
  bool cut_at_unknown_;
  Normalizer normalizer_;
  AddedTokenFinder added_, added_normalized_;
  Pretokenizer pretokenizer_;
  TokenDecoder decoder_;
  std::unordered_map<std::string_view, std::int32_t> whole_words_;
  std::vector<bool> is_special_ = special_ids(spec_);
  mutable std::mutex idle_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;

  static std::vector<bool> special_ids(const BpeSpec& spec) {
    std::vector<bool> special(spec.tokens.size());
    for (const AddedToken& token : spec.added) {
      if (token.special) special[token.id] = true;
    }
    return special;
  }

  void encode_part(std::string_view text, bool at_front, Scratch& scratch) const {
    if (!normalizer_.empty()) {
      const Normalizer::Result normalized = normalizer_.run(text, scratch.normalizer);
      text = normalized.text;
      at_front = at_front && normalized.keeps_front;
    }
    if (added_normalized_.empty()) return pretokenizer_.split(text, at_front, scratch.pieces, scratch);
    added_normalized_.split(text, scratch.normalized_parts);
    for (const TextPart& part : scratch.normalized_parts) {
      if (part.id >= 0) {
        scratch.ids->push_back(part.id);
      } else {
        pretokenizer_.split(text.substr(part.begin, part.end - part.begin), at_front && part.begin == 0, scratch.pieces,
                            scratch);
      }
    }
  }

  void encode_word(std::string_view word, Scratch& scratch) const {
    if (spec_.alphabet.kind == AlphabetKind::bytes) return encode_uncut(word, scratch);
    if (take_whole(word, *scratch.ids)) return;
    const auto length_at = [&](std::size_t at) { return utf8_length(static_cast<unsigned char>(word[at])); };
    std::size_t begin = 0;
    char32_t left = code_point_at(word, 0);
    for (std::size_t at = length_at(0); at < word.size(); at += length_at(at)) {
      const char32_t right = code_point_at(word, at);
      if (!joins_.may_join(left, right) && may_cut(left, right)) {
        encode_uncut(word.substr(begin, at - begin), scratch);
        begin = at;
      }
      left = right;
    }
    encode_uncut(word.substr(begin), scratch);
  }

  // Unknown neighbours stay together: they may become one token.
  bool may_cut(char32_t left, char32_t right) const {
    const bool left_known = alphabet_.character_id(left) != kNoToken;
    const bool right_known = alphabet_.character_id(right) != kNoToken;
    return cut_at_unknown_ ? left_known || right_known : left_known && right_known;
  }

  // A word, or a part of one that the joins cut out. The cache holds what becomes of it either way.
  void encode_uncut(std::string_view word, Scratch& scratch) const {
    std::vector<std::int32_t>& ids = *scratch.ids;
    if (word.size() > WordCache::kMaxWord) return merge_word(word, scratch);
    const WordCache::Key key = WordCache::make_key(word);
    if (const auto known = scratch.cache.find(key); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = ids.size();
    merge_word(word, scratch);
    scratch.cache.insert(key, std::span(ids).subspan(before));
  }

  void merge_word(std::string_view word, Scratch& scratch) const {
    if (spec_.alphabet.kind == AlphabetKind::bytes && take_whole(word, *scratch.ids)) return;
    alphabet_.spell(word, scratch.symbols);
    merges_.merge(scratch.symbols, scratch.workspace, *scratch.ids);
  }

  bool take_whole(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (!spec_.ignore_merges) return false;
    const auto whole = whole_words_.find(word);
    if (whole == whole_words_.end()) return false;
    ids.push_back(whole->second);
    return true;
  }

  // Hugging Face's drop them silently; the ids are the same here, but not the silence. Bytes that no UTF-8 has are no
  // loss.
  void warn_of_missing_symbols() const {
    if (spec_.alphabet.unknown) return;
    std::string missing;
    for (int byte = 0; byte < 0xF5; ++byte) {
      if (spec_.alphabet.byte_ids[byte] != kNoToken || byte == 0xC0 || byte == 0xC1) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(byte);
    }
    const bool bytes_count = spec_.alphabet.kind == AlphabetKind::bytes || spec_.alphabet.byte_fallback;
    if (bytes_count && !missing.empty()) {
      log::warn(spec_.place + ": no token for the bytes " + missing + "; they are left out, as Hugging Face's do");
    } else if (!bytes_count) {
      log::warn(spec_.place + ": characters without a token are left out, as Hugging Face's do (no unk_token)");
    }
  }
};

}  // namespace

std::unique_ptr<Tokenizer> load_bpe_tokenizer(const TokenizerFiles& files) {
  return std::make_unique<BpeTokenizer>(read_bpe_spec(files));
}

}  // namespace trireme::data
