#include "data/bpe_tokenizer.h"

#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/bpe.h"
#include "data/bpe_cache.h"
#include "data/bpe_spec.h"
#include "data/pretokenizer.h"
#include "data/tokenizer_added.h"
#include "data/tokenizer_nfc.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

AddedTokenFinder make_finder(const BpeSpec& spec, bool normalized) {
  NfcNormalizer nfc;
  std::vector<AddedToken> tokens;
  std::vector<std::string> keys;
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    std::string key = normalized && spec.nfc ? std::string(nfc.normalize(token.content)) : token.content;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) {
        throw Error(4112, spec.place,
                    "the added tokens \"" + tokens[i].content + "\" and \"" + token.content +
                        "\" are the same after normalisation");
      }
    }
    tokens.push_back(token);
    keys.push_back(std::move(key));
  }
  return {std::move(tokens), std::move(keys)};
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSpec spec)
      : spec_(std::move(spec)),
        digest_(digest_of(spec_)),
        merges_(spec_.byte_ids, spec_.unknown, spec_.merges),
        added_(make_finder(spec_, false)),
        added_normalized_(make_finder(spec_, true)),
        pretokenizer_(spec_.steps) {
    if (spec_.ignore_merges) {
      for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
        const BpeToken& token = spec_.tokens[id];
        if (token.in_model) whole_words_.emplace(token.bytes, static_cast<std::int32_t>(id));
      }
    }
    std::vector<Merge>().swap(spec_.merges);  // merges_ has them
    warn_of_missing_bytes();
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
        encode_part(text.substr(part.begin, part.end - part.begin), *scratch);
      }
    }
    return ids;
  }

  std::string decode(const std::int32_t* ids, std::size_t count, bool skip_special) const override {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t id = ids[i];
      if (id < 0 || id >= vocabulary() || !spec_.tokens[id].exists) {
        throw Error(4110, spec_.place, "no token has id " + std::to_string(id),
                    "decode with the tokenizer that made these ids");
      }
      if (!(skip_special && is_special_[id])) text.append(spec_.tokens[id].bytes);
    }
    return text;
  }

  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(spec_.tokens.size()); }
  std::int32_t end_of_document() const override { return spec_.end_of_document; }
  const std::string& digest() const override { return digest_; }
  const std::string& kind() const override { return kind_; }

 private:
  // What one encode needs beside the text; kept for the next one, so that the cache of words stays warm.
  class Scratch final : public WordSink {
   public:
    explicit Scratch(const BpeTokenizer& owner) : owner_(owner), pieces(owner.pretokenizer_.make_scratch()) {}
    void word(std::string_view bytes) override { owner_.encode_word(bytes, *this); }

   private:
    const BpeTokenizer& owner_;

   public:
    Pretokenizer::Scratch pieces;
    std::vector<TextPart> parts, normalized_parts;
    NfcNormalizer nfc;
    WordCache cache;
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
  MergeTable merges_;
  AddedTokenFinder added_, added_normalized_;
  Pretokenizer pretokenizer_;
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

  void encode_part(std::string_view text, Scratch& scratch) const {
    if (spec_.nfc) text = scratch.nfc.normalize(text);
    if (added_normalized_.empty()) return pretokenizer_.split(text, scratch.pieces, scratch);
    added_normalized_.split(text, scratch.normalized_parts);
    for (const TextPart& part : scratch.normalized_parts) {
      if (part.id >= 0) {
        scratch.ids->push_back(part.id);
      } else {
        pretokenizer_.split(text.substr(part.begin, part.end - part.begin), scratch.pieces, scratch);
      }
    }
  }

  void encode_word(std::string_view word, Scratch& scratch) const {
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
    if (spec_.ignore_merges) {
      if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
        scratch.ids->push_back(whole->second);
        return;
      }
    }
    merges_.encode(word, scratch.workspace, *scratch.ids);
  }

  // Hugging Face's drop them silently; the ids are the same here, but not the silence. Bytes that no UTF-8 has are no
  // loss.
  void warn_of_missing_bytes() const {
    if (spec_.unknown) return;
    std::string missing;
    for (int byte = 0; byte < 0xF5; ++byte) {
      if (spec_.byte_ids[byte] != kNoToken || byte == 0xC0 || byte == 0xC1) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(byte);
    }
    if (!missing.empty()) {
      log::warn(spec_.place + ": no token for the bytes " + missing + "; they are left out, as Hugging Face's do");
    }
  }
};

}  // namespace

std::unique_ptr<Tokenizer> load_bpe_tokenizer(const TokenizerFiles& files) {
  return std::make_unique<BpeTokenizer>(read_bpe_spec(files));
}

}  // namespace trireme::data
