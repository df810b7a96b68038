// Several sources become one: which of them a key follows.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "config/settings.h"

namespace trireme::config {

struct Merged {
  Setting setting;
  bool is_default = false;
  OfHiddenSize of_hidden_size = nullptr;  // gives the value
};

// The command line wins over a configuration. A tool's file and another source that say different things of a key are
// Error TR2111 with both places, and so are two parts of one source, or a value that one source gives and another rules
// out. Soft settings hold where nothing else says
// anything, the earlier added first.
class Merge {
 public:
  void add(const Settings& source);
  // With the soft settings. Throws TR2111 where a value is ruled out.
  std::map<const Key*, Merged> by_key() const;
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  std::map<const Key*, Merged> given_;
  std::vector<SoftSetting> soft_;
  std::vector<RuledOut> ruled_out_;
  std::vector<std::string> notices_;
};

}  // namespace trireme::config
