// Goldens by another tool's own code (tests/config/*_oracle.py), beside what is made of the same configurations here.
//
// A difference is one value that theirs and ours give otherwise; "accepted" is a value of each: "yes", or theirs "no"
// and ours the code of the error. Every difference has its row in a table, with the reason, and every row a difference.
// A row: value, reason, and what it is bound to, each only where given: theirs, ours; when: keys of the configuration
// (with dots from its root, which may be left out before all of its last names) and their values, a list of values, or
// "*" for any; without: keys that it lacks.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace trireme::testing {

using Json = nlohmann::json;
using OracleValues = std::map<std::string, std::string>;

struct OracleDifference {
  std::string value, theirs, ours;
};

inline std::vector<OracleDifference> differences_of(const Json& golden,
                                                    const std::function<OracleValues(const Json&)>& resolve) {
  const bool accepted = golden.at("accepted");
  OracleValues ours;
  try {
    ours = resolve(golden);
  } catch (const Error& error) {
    if (!accepted) return {};
    return {{"accepted", "yes", "TR" + std::to_string(error.code())}};
  }
  if (!accepted) return {{"accepted", "no", "yes"}};
  std::vector<OracleDifference> found;
  for (const auto& [name, theirs] : golden.at("values").items()) {
    if (theirs != ours.at(name)) found.push_back({name, theirs, ours.at(name)});
  }
  return found;
}

inline void flatten(const Json& config, const std::string& prefix, std::map<std::string, Json>& into) {
  for (const auto& [key, value] : config.items()) {
    into[prefix + key] = value;
    if (value.is_object()) flatten(value, prefix + key + ".", into);
  }
}

inline const Json* key_of(const std::map<std::string, Json>& config, const std::string& name) {
  for (const auto& [key, value] : config) {
    if (key == name || key.ends_with("." + name)) return &value;
  }
  return nullptr;
}

inline bool is_covered(const Json& row, const OracleDifference& difference, const std::map<std::string, Json>& config) {
  if (row.at("value") != difference.value || row.value("theirs", difference.theirs) != difference.theirs) return false;
  if (row.value("ours", difference.ours) != difference.ours) return false;
  const Json when = row.value("when", Json::object());
  for (const auto& [name, wanted] : when.items()) {
    const Json* given = key_of(config, name);
    if (given == nullptr) return false;
    const bool is_one = wanted.is_array() && std::find(wanted.begin(), wanted.end(), *given) != wanted.end();
    if (wanted != "*" && wanted != *given && !is_one) return false;
  }
  for (const std::string name : row.value("without", Json::array())) {
    if (key_of(config, name) != nullptr) return false;
  }
  return true;
}

// Of the goldens NAME.jsonl and the table NAME_differences.json. TRIREME_ORACLE_SAMPLE names another file of goldens, a
// random sample, in which rows may be without a difference.
inline void compare_with_oracle(const std::string& name, int at_least,
                                const std::function<OracleValues(const Json&)>& resolve) {
  const std::string folder = std::string(TRIREME_SOURCE_DIR) + "/tests/config/goldens/" + name;
  const Json table = Json::parse(std::ifstream(folder + "_differences.json"));
  const char* sample = std::getenv("TRIREME_ORACLE_SAMPLE");
  std::ifstream goldens(sample == nullptr ? folder + ".jsonl" : sample);
  std::vector<int> used(table.size(), 0);
  int compared = 0;
  for (std::string line; std::getline(goldens, line); ++compared) {
    const Json golden = Json::parse(line);
    std::map<std::string, Json> config;
    flatten(golden.at("config"), "", config);
    for (const OracleDifference& difference : differences_of(golden, resolve)) {
      bool is_known = false;
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (!is_covered(table[i], difference, config)) continue;
        is_known = true;
        ++used[i];
      }
      EXPECT_TRUE(is_known) << difference.value << ", theirs: " << difference.theirs << ", ours: " << difference.ours
                            << "; " << golden.at("about") << (golden.contains("text") ? " text" : "");
    }
  }
  EXPECT_GE(compared, at_least);
  for (std::size_t i = 0; i < table.size() && sample == nullptr; ++i) {
    EXPECT_GT(used[i], 0) << "no difference any more: " << table[i];
  }
}

}  // namespace trireme::testing
