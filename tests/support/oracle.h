// The Python environment that the set-up for tests unpacks (`scripts/setup.sh --tests`). Tests skip where it is absent.
#pragma once
#include <algorithm>
#include <filesystem>

namespace trireme::testing {

inline constexpr const char* kOraclePython = TRIREME_SOURCE_DIR "/.deps/oracle/bin/python";

// Whether it has a file or folder of its site-packages: looked for and not imported, which would cost seconds.
inline bool oracle_has(const std::filesystem::path& name) {
  namespace fs = std::filesystem;
  const fs::path versions = TRIREME_SOURCE_DIR "/.deps/oracle/lib";
  if (!fs::exists(kOraclePython) || !fs::exists(versions)) return false;
  return std::any_of(fs::directory_iterator(versions), fs::directory_iterator{},
                     [&](const auto& version) { return fs::exists(version.path() / "site-packages" / name); });
}

}  // namespace trireme::testing
