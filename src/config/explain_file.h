// `trireme config explain`: what becomes of each key of a file.
#pragma once
#include <string>

namespace trireme::config {

// A table of the file's keys, each with its value and place, its fate, and what it becomes here or why nothing. The
// file is a configuration, or DeepSpeed's, FSDP's or accelerate's by itself: what knows most of its keys decides. Files
// that a configuration names follow. Errors as parse_plan(), but nothing needs to be complete.
std::string explain_file(const std::string& text, const std::string& place);

}  // namespace trireme::config
