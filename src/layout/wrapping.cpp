#include "layout/wrapping.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"

namespace trireme {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void check_names(const Wrapping& wrapping, std::span<const std::string> unit_names) {
  const std::string place = "distributed.wrap_names";
  if (wrapping.names.empty()) {
    throw Error(2290, place, "is empty, but distributed.auto_wrap is by_name", "name units: wrap_names: [layers.*]");
  }
  for (const std::string& pattern : wrapping.names) {
    const auto is_match = [&](const std::string& name) { return matches(pattern, name); };
    if (std::any_of(unit_names.begin(), unit_names.end(), is_match)) continue;
    std::string known;
    for (const std::string& name : unit_names) known += (known.empty() ? "" : ", ") + name;
    throw Error(2290, place, pattern + " matches no unit of the model", "its units are " + known);
  }
}

// The elements that each unit is the first to read.
std::vector<std::int64_t> own_elements(std::span<const ParameterSpec> parameters,
                                       std::span<const std::vector<int>> unit_parameters) {
  std::vector<bool> seen(parameters.size(), false);
  std::vector<std::int64_t> elements;
  for (const std::vector<int>& listed : unit_parameters) {
    std::int64_t own = 0;
    for (const int index : listed) {
      const auto at = static_cast<std::size_t>(index);
      if (!seen[at]) own += parameters[at].numel();
      seen[at] = true;
    }
    elements.push_back(own);
  }
  return elements;
}

std::vector<int> merge_until(std::int64_t least, const std::vector<std::int64_t>& elements) {
  std::vector<int> sets;
  int set = 0;
  std::int64_t sum = 0, left = 0;
  for (const std::int64_t own : elements) left += own;
  for (const std::int64_t own : elements) {
    // A new set only where it can get as many again.
    if (sum >= least && left >= least && !sets.empty()) ++set, sum = 0;
    sets.push_back(set);
    sum += own;
    left -= own;
  }
  return sets;
}

}  // namespace

std::vector<int> wrap_units(const Wrapping& wrapping, std::span<const ParameterSpec> parameters,
                            std::span<const std::vector<int>> unit_parameters,
                            std::span<const std::string> unit_names) {
  std::vector<int> sets(unit_names.size(), 0);
  switch (wrapping.policy) {
    case WrapPolicy::transformer:
      for (std::size_t unit = 0; unit < sets.size(); ++unit) sets[unit] = static_cast<int>(unit);
      return sets;
    case WrapPolicy::size: return merge_until(wrapping.min_elements, own_elements(parameters, unit_parameters));
    case WrapPolicy::by_name: {
      check_names(wrapping, unit_names);
      const auto begins = [&](const std::string& name) {
        return std::any_of(wrapping.names.begin(), wrapping.names.end(),
                           [&](const std::string& pattern) { return matches(pattern, name); });
      };
      for (std::size_t unit = 1; unit < sets.size(); ++unit) {
        sets[unit] = sets[unit - 1] + (begins(unit_names[unit]) ? 1 : 0);
      }
      return sets;
    }
    case WrapPolicy::none: return sets;
  }
  return sets;
}

}  // namespace trireme
