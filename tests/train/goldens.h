// What another tool makes of configurations (goldens by tests/config/*_oracle.py), beside what is made of them here.
// Every difference has its row, with a reason, in a table.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace trireme::train {

using Json = nlohmann::json;

// A row speaks of every golden of whose parts one begins as its pattern says, where the same became of it here.
class Differences {
 public:
  explicit Differences(const std::string& file) {
    for (Json& row : rows_ = Json::parse(std::ifstream(file)))
      patterns_.emplace_back(row.at("about").get<std::string>());
    used_.resize(rows_.size());
  }

  bool explain(const std::string& about, const std::string& ours) {
    bool is_known = false;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].at("ours") != ours || !begins(about, patterns_[i])) continue;
      is_known = true;
      used_[i] = true;
    }
    return is_known;
  }

  void expect_all_used() const {
    for (std::size_t i = 0; i < rows_.size(); ++i) EXPECT_TRUE(used_[i]) << "no difference any more: " << rows_[i];
  }

 private:
  static bool begins(const std::string& about, const std::regex& pattern) {
    for (std::size_t at = 0; at != std::string::npos;) {
      const std::size_t end = about.find("; ", at);
      const std::string part = about.substr(at, end == std::string::npos ? end : end - at);
      if (std::regex_search(part, pattern, std::regex_constants::match_continuous)) return true;
      at = end == std::string::npos ? end : end + 2;
    }
    return false;
  }

  Json rows_;
  std::vector<std::regex> patterns_;
  std::vector<bool> used_;
};

// difference: how a golden's configuration ends here, in the words of the table; "" as in the other tool. With
// TRIREME_DRAWN, a folder of goldens that were just drawn (tests/config/live_oracles_test.py), those are compared.
inline void expect_only_known_differences(const std::string& tool,
                                          const std::function<std::string(const Json&)>& difference) {
  const std::string kept = std::string(TRIREME_SOURCE_DIR) + "/tests/config/goldens/";
  const char* drawn = std::getenv("TRIREME_DRAWN");
  Differences table(kept + tool + "_differences.json");
  std::ifstream goldens((drawn == nullptr ? kept : std::string(drawn) + "/") + tool + ".jsonl");
  int compared = 0;
  for (std::string line; std::getline(goldens, line); ++compared) {
    const Json golden = Json::parse(line);
    const std::string ours = difference(golden);
    EXPECT_TRUE(ours.empty() || table.explain(golden.at("about"), ours)) << "ours: " << ours << "; " << line;
  }
  EXPECT_GT(compared, 100);
  if (drawn == nullptr) table.expect_all_used();
}

}  // namespace trireme::train
