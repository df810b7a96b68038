// Lines for people: on standard error, and in logs/rank-N.log once open_rank_log was called. Thread-safe.
#pragma once
#include <filesystem>
#include <string_view>

namespace trireme::log {

void info(std::string_view line);
void warn(std::string_view line);
void error(std::string_view line);
void record(std::string_view line);  // an error line for the rank log alone

// Appends all lines of this thread's rank to the file from now on (ranks that are threads have a file each); with
// quiet, info lines no longer go to standard error (ranks other than 0). Throws Error TR3xxx when it cannot be opened.
void open_rank_log(const std::filesystem::path& file, bool quiet);
void close_rank_log();

}  // namespace trireme::log
