// Slips of one letter.
#pragma once
#include <set>
#include <string>

#include "helpers.h"

namespace trireme::config {

// Deletions, swaps of neighbours, replacements and insertions at each place of the word.
inline std::set<std::string> misspellings(const std::string& word) {
  std::set<std::string> result;
  for (std::size_t i = 0; i < word.size(); ++i) {
    std::string deleted = word;
    result.insert(deleted.erase(i, 1));
    for (const char letter : {'e', 'x', '_', 's'}) {
      std::string replaced = word, inserted = word;
      replaced[i] = letter;
      result.insert(replaced);
      result.insert(inserted.insert(i, 1, letter));
    }
    if (i + 1 < word.size()) {
      std::string swapped = word;
      std::swap(swapped[i], swapped[i + 1]);
      result.insert(swapped);
    }
  }
  result.erase(word);
  result.erase("");
  return result;
}

}  // namespace trireme::config
