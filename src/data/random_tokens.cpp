#include "data/random_tokens.h"

#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "data/manifest.h"
#include "data/shards.h"
#include "data/tokenizer.h"

namespace trireme::data {
namespace {

template <class Stored>
std::vector<Stored> draw(std::int64_t vocabulary, std::uint64_t count, std::uint64_t seed) {
  const std::uint64_t stream = stream_id("random_tokens");
  std::vector<Stored> tokens(count);
  for (std::uint64_t i = 0; i < count; i += 4) {
    const auto block = random_block(seed, stream, i / 4);
    for (std::uint64_t k = 0; k < 4 && i + k < count; ++k) {
      // The upper half of the product is uniform but for 2^-32 of it.
      tokens[i + k] = static_cast<Stored>((static_cast<std::uint64_t>(block[k]) * vocabulary) >> 32);
    }
  }
  return tokens;
}

}  // namespace

void write_random_tokens(const std::filesystem::path& folder, std::int64_t vocabulary, std::uint64_t count,
                         std::uint64_t seed) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  const auto bytes = load_tokenizer("bytes");
  save_tokenizer("bytes", folder / kTokenizerFolder);
  manifest.tokenizer_kind = bytes->kind();
  manifest.tokenizer_digest = bytes->digest();
  manifest.vocabulary = vocabulary;
  manifest.end_of_document = 0;
  manifest.options = {.text_field = "text", .max_record_bytes = 1, .shard_tokens = count};
  manifest.held_out_rule = "none";
  const auto write = [&](const char* split, std::span<const std::byte> tokens) {
    SplitWriter writer(folder, split, manifest.token_bytes(), count);
    if (!tokens.empty()) writer.add_document(tokens, 0);
    return writer.finish();
  };
  const auto draw_as = [&]<class Stored>(Stored) {
    const std::vector<Stored> tokens = draw<Stored>(vocabulary, count, seed);
    return write("train", std::as_bytes(std::span(tokens)));
  };
  manifest.train = manifest.token_bytes() == 2 ? draw_as(std::uint16_t{}) : draw_as(std::uint32_t{});
  manifest.heldout = write("heldout", {});
  write_file_atomic(folder / kManifestName, to_text(manifest));
}

}  // namespace trireme::data
