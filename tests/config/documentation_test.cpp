// The documentation is the schema, and the schema is one table without holes.
#include <set>
#include <sstream>

#include "base/file.h"
#include "config/schema.h"
#include "config/value.h"
#include "helpers.h"

namespace trireme::config {
namespace {

TEST(Documentation, IsWhatTheSchemaSays) {
  const std::string committed = read_file(std::string(TRIREME_SOURCE_DIR) + "/docs/configuration.md");
  std::istringstream expected(schema_as_markdown()), found(committed);
  std::string wanted, line;
  while (std::getline(expected, wanted)) {
    std::getline(found, line);
    ASSERT_EQ(line, wanted) << "renew it: build/trireme config docs > docs/configuration.md";
  }
  EXPECT_EQ(committed.size(), schema_as_markdown().size());
}

TEST(Documentation, NamesEveryKeyAndSynonym) {
  const std::string text = schema_as_markdown();
  for (const Key& key : keys()) {
    EXPECT_NE(text.find("`" + std::string(key.name) + "`"), std::string::npos) << key.name;
    EXPECT_EQ(key.doc.find('|'), std::string_view::npos) << key.name;
    EXPECT_FALSE(key.doc.empty()) << key.name;
    for (const Alias& alias : key.aliases) {
      EXPECT_NE(text.find("`" + full_name(key, alias) + "`"), std::string::npos) << alias.name;
      EXPECT_FALSE(alias.tool.empty()) << alias.name;
    }
  }
}

TEST(Schema, HasEachNameOnceAndOneWayToAValue) {
  std::set<std::string> names;
  for (const Key& key : keys()) {
    EXPECT_TRUE(names.emplace(key.name).second) << key.name;
    for (const Alias& alias : key.aliases) {
      EXPECT_TRUE(names.insert(full_name(key, alias)).second) << full_name(key, alias);
      EXPECT_EQ(find_key(full_name(key, alias)).key, &key);
    }
    if (key.tier != Tier::supported) continue;
    const int ways =
        (key.required ? 1 : 0) + (key.optional ? 1 : 0) + (key.fallback.empty() ? 0 : 1) + (key.rule.empty() ? 0 : 1);
    EXPECT_EQ(ways, 1) << key.name;
    if (!key.fallback.empty()) {
      EXPECT_NO_THROW(parse_default(key)) << key.name;
    }
  }
}

TEST(Quickstart, IsAPlan) {
  const Plan plan = load_plan(std::string(TRIREME_SOURCE_DIR) + "/configs/quickstart.yaml", {});
  EXPECT_EQ(plan.name, "quickstart");
  EXPECT_TRUE(plan.notices.empty()) << plan.notices.front();
}

}  // namespace
}  // namespace trireme::config
