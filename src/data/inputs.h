// The files that `trireme data prepare` reads: found, checked and put in order before anything is written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare.h"

namespace trireme::data {

enum class InputKind : std::uint8_t { text, jsonl };

struct InputFile {
  std::filesystem::path path;      // as the user named it, or found below a folder that the user named
  std::filesystem::path absolute;  // with links resolved; inputs are sorted by it
  InputKind kind = InputKind::text;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970
};

// Size and time of last change, as the file system has them now. Error TR4002 where it is no file that can be read.
InputFile stat_input(const std::filesystem::path& path);

// Errors: TR4001 missing, TR4002 unreadable, TR4003 neither .txt nor .jsonl, TR4004 a folder without any, TR4005 inputs
// and output inside one another, TR4006 the same file twice, TR4008 no input named.
std::vector<InputFile> collect_inputs(const PrepareOptions& options);

}  // namespace trireme::data
