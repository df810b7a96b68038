// A tokenizer.json small enough to read, for tests that change it.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizer.h"
#include "support/temporary_folder.h"

namespace trireme::data {

// 256 bytes (id = place in the byte alphabet's order of bytes), merges "h e" -> 256, "l l" -> 257, "he ll" -> 258,
// "hell o" -> 259, "\u0120 hello" -> 260, the special token <|endoftext|> 261; GPT-2's splitting.
nlohmann::json small_tokenizer();

// The same in Llama-2's way: <unk> 0, <s> 1, </s> 2, the bytes 3 .. 258, "\u2581" 259, the letters of "hello" 260 ..
// 263, merges "h e" -> 264, "l l" -> 265, "he ll" -> 266, "hell o" -> 267, "\u2581 hello" -> 268. Its decoder gives
// text back without the space that the normalizer puts before it. No <|endoftext|>: it needs a tokenizer_config.json.
nlohmann::json small_llama_tokenizer();

// Writes it into a folder of its own and loads it from there.
class TokenizerOnDisk {
 public:
  explicit TokenizerOnDisk(const nlohmann::json& description) : TokenizerOnDisk(description.dump()) {}
  explicit TokenizerOnDisk(const std::string& text) { write("tokenizer.json", text); }
  void write(const std::string& name, const std::string& text) const;  // another file beside it
  std::unique_ptr<Tokenizer> load() const { return load_tokenizer(folder_.path().string()); }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

// Each byte as byte-level vocabularies spell it.
std::string byte_name(int byte);

}  // namespace trireme::data
