// In which values two plans differ.
#pragma once
#include <string>
#include <vector>

#include "config/plan.h"

namespace trireme::config {

struct Difference {
  std::string key;
  std::string a, b;                // values, as YAML; "as MODEL_FOLDER has it" where model.path decides
  std::string origin_a, origin_b;  // "run.yaml:3:5", "default"
};

// Every key that the two resolve to different values, in the order of the documentation; not the name and the folder of
// the run where both follow from the files' names.
std::vector<Difference> differences(const Plan& a, const Plan& b);

// As lines for a reader; empty without differences.
std::string to_text(const std::vector<Difference>& differences, const std::string& name_a, const std::string& name_b);

}  // namespace trireme::config
