#include "tokenizer/small_tokenizer.h"

#include <fstream>
#include <string_view>
#include <vector>

#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

constexpr const char* kDescription = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{"id": 261, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "merges": ["h e", "l l", "he ll", "hell o", "\u0120 hello"]}
})";

constexpr const char* kLlamaDescription = R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true},
                   {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true},
                   {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
  "pre_tokenizer": null,
  "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "merges": ["h e", "l l", "he ll", "hell o", "\u2581 hello"]}
})";

}  // namespace

std::string byte_name(int byte) {
  int unprintable = 0;
  const auto printable = [](int b) { return (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD); };
  for (int b = 0; b < byte; ++b) unprintable += printable(b) ? 0 : 1;
  std::string name(4, '\0');
  name.resize(write_utf8(static_cast<char32_t>(printable(byte) ? byte : 0x100 + unprintable), name.data()));
  return name;
}

nlohmann::json small_tokenizer() {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_name(byte)] = byte;
  const std::string space = byte_name(' ');
  int next = 256;
  for (const std::string& name :
       {std::string("he"), std::string("ll"), std::string("hell"), std::string("hello"), space + "hello"}) {
    vocabulary[name] = next++;
  }
  nlohmann::json description = nlohmann::json::parse(kDescription);
  description["model"]["vocab"] = std::move(vocabulary);
  return description;
}

nlohmann::json small_llama_tokenizer() {
  std::vector<std::string> names = {"<unk>", "<s>", "</s>"};
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    names.push_back(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">");
  for (const char* name : {"\u2581", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u2581hello"}) {
    names.emplace_back(name);
  }
  nlohmann::json description = nlohmann::json::parse(kLlamaDescription);
  for (std::size_t id = 0; id < names.size(); ++id) description["model"]["vocab"][names[id]] = id;
  return description;
}

void TokenizerOnDisk::write(const std::string& name, const std::string& text) const {
  std::filesystem::remove(folder_.path() / name);  // file systems flush what replaces a file in place
  std::ofstream(folder_.path() / name, std::ios::binary) << text;
}

}  // namespace trireme::data
