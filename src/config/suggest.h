// The nearest known name of a word that is not known.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::config {

// Insertions, deletions, replacements and swaps of neighbours that lead from a to b (Damerau-Levenshtein, each place
// edited once). Bytes, and long words are cut: fit for keys, not for prose.
int edit_distance(std::string_view a, std::string_view b);

// The known words at the smallest distance, if that is small against the length of the word (after
// its last dot); in the order of known, four at most.
std::vector<std::string> nearest(std::string_view word, std::span<const std::string> known);

// One sentence that helps the writer of a key that find_key() does not know: the key of that name in another block, the
// nearest keys, or else the keys of the block.
std::string suggest_key(std::string_view name);

// The same for a block at the top.
std::string suggest_block(std::string_view name);

}  // namespace trireme::config
