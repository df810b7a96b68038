#include "config/diff.h"

#include <algorithm>

#include "config/schema.h"

namespace trireme::config {
namespace {

struct Side {
  std::string value, origin;
  bool is_default = false;
};

Side side_of(const Plan& plan, const Key& key) {
  const Origin& origin = plan.origins.at(std::string(key.name));
  if (origin.is_of_model) return {"as " + plan.model.path + " has it", origin.place, true};
  return {to_text(key.field.get(plan, key)), origin.place, origin.is_default};
}

bool follows_from_the_files_name(const Key& key) {
  return block_of(key.name).empty();
}

}  // namespace

std::vector<Difference> differences(const Plan& a, const Plan& b) {
  std::vector<Difference> result;
  for (const Key& key : keys()) {
    if (key.tier != Tier::supported) continue;
    const Side left = side_of(a, key), right = side_of(b, key);
    if (left.value == right.value) continue;
    if (left.is_default && right.is_default && follows_from_the_files_name(key)) continue;
    result.push_back({std::string(key.name), left.value, right.value, left.origin, right.origin});
  }
  return result;
}

std::string to_text(const std::vector<Difference>& differences, const std::string& name_a, const std::string& name_b) {
  if (differences.empty()) return {};
  std::string text = "--- " + name_a + "\n+++ " + name_b + "\n";
  for (const Difference& each : differences) {
    text += each.key + "\n- " + each.a + "  (" + each.origin_a + ")\n+ " + each.b + "  (" + each.origin_b + ")\n";
  }
  return text;
}

}  // namespace trireme::config
