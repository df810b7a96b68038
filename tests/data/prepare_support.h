// What the tests of prepared data share: folders that vanish, files in them, and what came out.
#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "data/prepare.h"
#include "support/temporary_folder.h"

namespace trireme::data {

class TempFolder : public trireme::testing::TemporaryFolder {
 public:
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }
};

inline std::filesystem::path write(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// {"text": "..."} for texts without anything to escape.
inline std::string json_line(const std::string& text) {
  return "{\"text\": \"" + text + "\"}\n";
}

inline std::string random_text(std::mt19937_64& random, std::size_t max_size) {
  static const std::vector<std::string> pieces = {"a", "b", " ", "Z", "ä", "水", "😀", ".", "word ", "\\n"};
  std::string text;
  const std::size_t size = 1 + random() % max_size;
  while (text.size() < size) text += pieces[random() % pieces.size()];
  return text;
}

// The code of the error that the call throws, 0 if it throws none.
template <class Call>
int error_code(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return 0;
}

// The whole error.
template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(0, "", "");
}

// Every file below the folder but those of work in progress: path -> bytes.
inline std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_regular_file() && !name.starts_with(".prepare")) files[name] = read_file(entry.path());
  }
  return files;
}

}  // namespace trireme::data
