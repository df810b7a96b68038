// Every slip of one letter in a key of another tool's table is an error that names the key, at every level.
#include <algorithm>

#include "config/dialects.h"
#include "config/schema.h"
#include "misspellings.h"

namespace trireme::config {
namespace {

// The names that a file may give, with dots: of the table, their other spellings, and those without the prefix.
std::vector<std::string> names_of(const Dialect& dialect) {
  std::vector<std::string> names;
  for (const ForeignKey& row : dialect.keys) {
    std::vector<std::string_view> spellings = row.names;
    spellings.push_back(row.name);
    for (const std::string_view name : spellings) {
      names.emplace_back(name);
      if (!dialect.prefix.empty() && name.starts_with(dialect.prefix)) {
        names.emplace_back(name.substr(dialect.prefix.size()));
      }
    }
  }
  return names;
}

// {a: {b: 1}} of "a.b".
YamlNode tree_of(const std::string& name) {
  const std::size_t dot = name.find('.');
  YamlNode value{.kind = YamlNode::Kind::scalar, .text = "1"};
  if (dot != std::string::npos) value = tree_of(name.substr(dot + 1));
  YamlNode block{.kind = YamlNode::Kind::block};
  block.entries.push_back({name.substr(0, dot), {}, value});
  return block;
}

bool is_known(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& each) { return each == name || each.starts_with(name + "."); });
}

// Of a large table every few slips: each is compared with all its names.
void expect_slips_are_named(const Dialect& dialect, int every, int least) {
  const std::vector<std::string> names = names_of(dialect);
  int count = 0;
  for (const std::string& name : names) {
    const std::size_t start = name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1;
    for (const std::string& leaf : misspellings(name.substr(start))) {
      const std::string misspelt = name.substr(0, start) + leaf;
      const bool is_comment = dialect.underscore_is_comment && leaf.starts_with('_');
      if (is_comment || leaf.find('.') != std::string::npos || is_known(names, misspelt)) continue;
      if (++count % every != 0) continue;
      Translation translation(dialect);
      try {
        translation.take(tree_of(misspelt), "file");
        ADD_FAILURE() << dialect.tool << " takes " << misspelt;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), 2101) << error.what();
        EXPECT_NE(error.remedy().find(name), std::string::npos) << misspelt << ": " << error.what();
      }
    }
  }
  EXPECT_GT(count, least);
}

TEST(Misspellings, OfAKeyOfDeepSpeedNameTheKey) {
  expect_slips_are_named(deepspeed_dialect(), 8, 5000);
}

TEST(Misspellings, OfAKeyOfFsdpNameTheKey) {
  expect_slips_are_named(fsdp_dialect(), 1, 3000);
}

TEST(Misspellings, OfAKeyOfAccelerateNameTheKey) {
  expect_slips_are_named(accelerate_dialect(), 1, 3000);
}

// Names from other tools in a configuration, in their block and at the top. Every fourth slip: each is a whole plan.
TEST(Misspellings, OfANameFromAnotherToolNameItOrOurs) {
  std::vector<std::pair<std::string, std::string>> names;  // with the key of ours
  for (const Key& key : keys()) {
    if (key.tier == Tier::foreign) names.emplace_back(key.name, key.name);
    for (const Alias& alias : key.aliases) names.emplace_back(full_name(key, alias), key.name);
  }
  int count = 0;
  for (const auto& [name, ours] : names) {
    const std::string leaf(leaf_of(name));
    const std::string block = name.substr(0, name.size() - leaf.size());
    for (const std::string& slip : misspellings(leaf)) {
      const bool at_top = find_key(leaf).is_lifted && count % 8 == 0;
      const std::string written = at_top ? slip : block + slip;
      if (find_key(written).key != nullptr || is_block(written) || ++count % 4 != 0) continue;
      const auto error = error_of(std::string(kSmall).append("\"").append(written).append("\": 1\n"));
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), 2101) << error->what();
      const bool is_named =
          error->remedy().find(name) != std::string::npos || error->remedy().find(ours) != std::string::npos;
      EXPECT_TRUE(is_named) << written << " should be " << name << ": " << error->what();
    }
  }
  EXPECT_GT(count, 3000);
}

}  // namespace
}  // namespace trireme::config
