#include "data/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace trireme::data {
namespace {

struct Bound {
  std::optional<std::int64_t> value;
  bool percent = false;
  bool valid = true;
};

Bound parse_bound(std::string_view text) {
  if (text.empty()) return {};
  Bound bound{.value = 0, .percent = text.ends_with('%')};
  if (bound.percent) text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *bound.value);
  const bool fits = !bound.percent || (*bound.value >= -100 && *bound.value <= 100);
  bound.valid = error == std::errc() && end == text.data() + text.size() && fits;
  return bound;
}

std::uint64_t absolute(std::int64_t bound, bool percent, std::uint64_t num_documents) {
  const auto count = static_cast<std::int64_t>(num_documents);
  if (percent) bound = std::llrint(static_cast<double>(bound) * static_cast<double>(count) / 100);  // half to even
  if (bound < 0) bound = bound < -count ? 0 : count + bound;
  return static_cast<std::uint64_t>(std::min(bound, count));
}

}  // namespace

Split parse_split(const std::string& text, const std::string& place) {
  const auto refuse = [&](const std::string& why) {
    throw Error(4025, place, "\"" + text.substr(0, 80) + "\" is no split: " + why,
                "write train or heldout, or a part: train[:1000], train[10%:20%], heldout[-100:]");
  };
  Split split;
  const std::size_t bracket = text.find('[');
  split.name = text.substr(0, bracket);
  if (split.name != "train" && split.name != "heldout") refuse("the splits are train and heldout");
  if (bracket == std::string::npos) return split;
  const std::string_view slice = std::string_view(text).substr(bracket);
  const std::size_t colon = slice.find(':');
  if (!slice.ends_with(']') || colon == std::string_view::npos) refuse("a part is written [from:to]");
  const Bound from = parse_bound(slice.substr(1, colon - 1));
  const Bound to = parse_bound(slice.substr(colon + 1, slice.size() - colon - 2));
  if (!from.valid || !to.valid) refuse("its bounds are whole numbers, or whole percentages from -100% to 100%");
  if (from.value && to.value && from.percent != to.percent) refuse("one bound is a percentage, the other a number");
  split.from = from.value;
  split.to = to.value;
  split.percent = from.percent || to.percent;
  return split;
}

DocumentRange documents_of(const Split& split, std::uint64_t num_documents) {
  DocumentRange range{0, num_documents};
  if (split.from) range.begin = absolute(*split.from, split.percent, num_documents);
  if (split.to) range.end = absolute(*split.to, split.percent, num_documents);
  range.end = std::max(range.begin, range.end);
  return range;
}

}  // namespace trireme::data
