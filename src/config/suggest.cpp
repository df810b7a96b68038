#include "config/suggest.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

#include "config/schema.h"

namespace trireme::config {
namespace {

constexpr std::size_t kMaxWord = 96;
constexpr std::size_t kMaxSuggestions = 4;

std::string joined(const std::vector<std::string>& words, const std::string& last) {
  std::string result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) result += i + 1 == words.size() ? last : ", ";
    result += words[i];
  }
  return result;
}

// Own names first, then names of later work, then synonyms: the first of several equally near is named first.
const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Key& key : keys()) result.emplace_back(key.name);
    for (const Key& key : keys()) {
      for (const Alias& alias : key.aliases) result.push_back(full_name(key, alias));
    }
    return result;
  }();
  return names;
}

std::string with_meaning(const std::string& name) {
  const Match match = find_key(name);
  return match.alias == nullptr ? name : name + " (here " + std::string(match.key->name) + ")";
}

// The own names of keys that are called like this in another block.
std::vector<std::string> elsewhere(std::string_view leaf) {
  std::vector<std::string> result;
  for (const std::string& name : all_names()) {
    if (leaf_of(name) != leaf) continue;
    std::string own(find_key(name).key->name);
    if (std::find(result.begin(), result.end(), own) == result.end()) result.push_back(std::move(own));
  }
  return result;
}

std::string keys_of_block(std::string_view block) {
  std::vector<std::string> names;
  for (const Key& key : keys()) {
    if (key.tier == Tier::supported && block_of(key.name) == block) names.emplace_back(leaf_of(key.name));
  }
  const std::string where = block.empty() ? "at the top" : "in " + std::string(block);
  std::string result = "keys " + where + ": " + joined(names, ", ");
  if (block.empty()) {
    std::vector<std::string> blocks;
    for (const std::string_view name : block_names()) blocks.emplace_back(name);
    result += "; blocks: " + joined(blocks, ", ");
  }
  return result;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kMaxWord);
  b = b.substr(0, kMaxWord);
  using Row = std::array<int, kMaxWord + 1>;
  Row before_last{}, last{}, row{};
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = last;
    last = row;
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view word, std::span<const std::string> known) {
  // A third of the word that is in doubt, not of the block before it.
  int best = std::max(1, static_cast<int>(std::min(leaf_of(word).size(), kMaxWord)) / 3);
  std::vector<std::string> result;
  for (const std::string& candidate : known) {
    if (std::abs(std::ssize(candidate) - std::ssize(word)) > best) continue;  // for speed: the distance is no less
    const int distance = edit_distance(word, candidate);
    if (distance > best) continue;
    if (distance < best) result.clear();
    best = distance;
    result.push_back(candidate);
  }
  if (result.size() > kMaxSuggestions) result.resize(kMaxSuggestions);
  return result;
}

std::string suggest_key(std::string_view name) {
  if (const auto same = elsewhere(leaf_of(name)); !same.empty()) {
    const std::string_view block = block_of(same.front());
    if (same.size() > 1) return "did you mean " + joined(same, " or ") + "?";
    return "write " + same.front() +
           (block.empty() ? ": it stands at the top, in no block" : ": it belongs in the block " + std::string(block));
  }
  std::vector<std::string> near = nearest(name, all_names());
  if (near.empty()) {
    // A misspelt key in a wrong block.
    std::vector<std::string> leaves;
    for (const std::string& known : all_names()) leaves.emplace_back(leaf_of(known));
    for (const std::string& leaf : nearest(leaf_of(name), leaves)) {
      for (const std::string& own : elsewhere(leaf)) {
        if (std::find(near.begin(), near.end(), own) == near.end()) near.push_back(own);
      }
    }
    if (near.size() > kMaxSuggestions) near.resize(kMaxSuggestions);
  }
  for (std::string& candidate : near) candidate = with_meaning(candidate);
  if (!near.empty()) return "did you mean " + joined(near, " or ") + "?";
  return keys_of_block(is_block(block_of(name)) ? block_of(name) : "");
}

std::string suggest_block(std::string_view name) {
  std::vector<std::string> blocks;
  for (const std::string_view block : block_names()) blocks.emplace_back(block);
  const std::vector<std::string> near = nearest(name, blocks);
  if (!near.empty()) return "did you mean " + joined(near, " or ") + "?";
  return "blocks: " + joined(blocks, ", ");
}

}  // namespace trireme::config
