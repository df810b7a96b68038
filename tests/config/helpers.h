// What the configuration's tests share.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/plan.h"

namespace trireme::config {

using Overrides = std::vector<std::string>;

// The smallest configuration that is a plan.
inline const std::string kSmall =
    "model:\n"
    "  hidden_size: 64\n"
    "  num_layers: 2\n"
    "  num_heads: 4\n"
    "data:\n"
    "  path: tokens\n"
    "training:\n"
    "  max_steps: 10\n";

inline Plan plan_of(const std::string& yaml, const Overrides& overrides = {}) {
  return parse_plan(yaml, "run.yaml", overrides);
}

// The error that the configuration is refused with; none, with a failed test, where it is accepted.
inline std::optional<Error> error_of(const std::string& yaml, const Overrides& overrides = {}) {
  try {
    plan_of(yaml, overrides);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << yaml.substr(0, 2000);
  return std::nullopt;
}

inline bool has_notice(const Plan& plan, const std::string& fragment) {
  for (const std::string& notice : plan.notices) {
    if (notice.find(fragment) != std::string::npos) return true;
  }
  return false;
}

}  // namespace trireme::config
