// Plans from a configuration and a file of another tool beside it.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "helpers.h"
#include "support/temporary_folder.h"

namespace trireme::config {

// A folder that holds the files which a configuration names.
class ToolFolder {
 public:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
    return folder_.path() / name;
  }
  std::string place() const { return (folder_.path() / "run.yaml").string(); }

 private:
  testing::TemporaryFolder folder_;
};

}  // namespace trireme::config
