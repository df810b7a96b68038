// Prepared data that no text stands behind: tokens drawn at random, for measuring.
#pragma once
#include <cstdint>
#include <filesystem>

namespace trireme::data {

// Writes a prepared folder with one document of `count` ids below `vocabulary` as its train split. The ids belong to no
// text: the tokenizer that lies beside them is that of bytes, for form's sake. The folder must not hold data.
void write_random_tokens(const std::filesystem::path& folder, std::int64_t vocabulary, std::uint64_t count,
                         std::uint64_t seed);

}  // namespace trireme::data
