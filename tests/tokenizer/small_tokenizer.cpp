#include "tokenizer/small_tokenizer.h"

#include <fstream>

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

void TokenizerOnDisk::write(const std::string& name, const std::string& text) const {
  std::ofstream(folder_.path() / name, std::ios::binary) << text;
}

}  // namespace trireme::data
