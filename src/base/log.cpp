#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace trireme::log {
namespace {

struct RankLog {
  std::shared_ptr<spdlog::logger> file;
  bool quiet = false;
};

RankLog& rank_log() {
  thread_local RankLog instance;
  return instance;
}

spdlog::logger& terminal() {
  static spdlog::logger instance = [] {
    spdlog::logger logger("trireme", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger.set_pattern("%v");
    return logger;
  }();
  return instance;
}

bool begins_with_code(std::string_view line) {
  return line.size() > 2 && line.starts_with("TR") && line[2] >= '0' && line[2] <= '9';
}

void write(spdlog::level::level_enum level, std::string_view prefix, std::string_view line) {
  const RankLog& rank = rank_log();
  if (rank.file) rank.file->log(level, line);
  if (rank.quiet && level == spdlog::level::info) return;
  terminal().log(level, std::string(prefix) + std::string(line));
}

}  // namespace

void info(std::string_view line) {
  write(spdlog::level::info, "", line);
}

void warn(std::string_view line) {
  write(spdlog::level::warn, "trireme: warning: ", line);
}

void error(std::string_view line) {
  write(spdlog::level::err, begins_with_code(line) ? "trireme: error " : "trireme: error: ", line);
}

void record(std::string_view line) {
  if (const RankLog& rank = rank_log(); rank.file) rank.file->error(line);
}

void open_rank_log(const std::filesystem::path& file, bool quiet) {
  try {
    auto logger =
        std::make_shared<spdlog::logger>("rank", std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string()));
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
    logger->flush_on(spdlog::level::info);  // a killed rank must leave its last line
    rank_log() = {std::move(logger), quiet};
  } catch (const std::exception& failure) {
    throw Error(3020, file.string(), std::string("cannot open the log file: ") + failure.what(),
                "check that the folder can be written, or choose another output_dir");
  }
}

void close_rank_log() {
  rank_log() = {};
}

}  // namespace trireme::log
