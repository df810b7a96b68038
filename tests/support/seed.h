// The seed of a random test: another one each run, or TRIREME_TEST_SEED to see a failure again.
#pragma once
#include <cstdlib>
#include <random>
#include <string>

namespace trireme::testing {

inline unsigned test_seed() {
  const char* fixed = std::getenv("TRIREME_TEST_SEED");
  return fixed != nullptr ? static_cast<unsigned>(std::stoul(fixed)) : std::random_device()();
}

}  // namespace trireme::testing
