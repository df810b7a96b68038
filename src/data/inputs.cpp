#include "data/inputs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

std::string words(int number) {
  return std::generic_category().message(number);
}

bool is_text(const fs::path& path) {
  return path.extension() == ".txt";
}

bool is_jsonl(const fs::path& path) {
  return path.extension() == ".jsonl";
}

bool is_inside(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void add_folder(const fs::path& folder, std::vector<InputFile>& inputs) {
  const std::size_t before = inputs.size();
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code ignored;
    if ((is_text(path) || is_jsonl(path)) && !entry->is_directory(ignored)) inputs.push_back(stat_input(path));
  }
  if (error) throw Error(4002, folder.string(), "the folder cannot be read: " + error.message());
  if (inputs.size() == before) {
    throw Error(4004, folder.string(), "the folder holds no .txt and no .jsonl file",
                "text files end in .txt, files with a JSON object a line in .jsonl");
  }
}

void check_apart(const fs::path& input, const fs::path& output) {
  std::error_code ignored;
  const fs::path absolute = fs::canonical(input, ignored);
  const bool output_inside = fs::is_directory(absolute, ignored) && is_inside(output, absolute);
  if (!output_inside && !is_inside(absolute, output)) return;
  throw Error(4005, output.string(),
              output_inside ? "the output lies inside the input folder " + input.string()
                            : "the input " + input.string() + " lies inside the output folder",
              "choose an output folder apart from the inputs");
}

}  // namespace

InputFile stat_input(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Error(missing ? 4001 : 4002, path.string(),
                missing ? "the input does not exist" : "the input cannot be read: " + words(errno),
                missing ? "name a .txt or .jsonl file, or a folder of them" : "");
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(4002, path.string(), "the input is no regular file", "write it to a file first: inputs are read twice");
  }
  if (::access(path.c_str(), R_OK) != 0) {
    throw Error(4002, path.string(), "the input cannot be read: " + words(errno));
  }
  return {.path = path,
          .absolute = fs::canonical(path),
          .kind = is_jsonl(path) ? InputKind::jsonl : InputKind::text,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::vector<InputFile> collect_inputs(const PrepareOptions& options) {
  if (options.inputs.empty()) {
    throw Error(4008, "data prepare", "no input is named", "name .txt or .jsonl files, or folders of them");
  }
  const fs::path output = fs::weakly_canonical(options.output);
  std::vector<InputFile> inputs;
  for (const fs::path& input : options.inputs) {
    std::error_code ignored;
    if (fs::is_directory(input, ignored)) {
      check_apart(input, output);
      add_folder(input, inputs);
      continue;
    }
    InputFile file = stat_input(input);
    check_apart(input, output);
    if (!is_text(input) && !is_jsonl(input)) {
      throw Error(4003, input.string(), "the input's name ends neither in .txt nor in .jsonl",
                  "text files end in .txt, files with a JSON object a line in .jsonl");
    }
    inputs.push_back(std::move(file));
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const InputFile& a, const InputFile& b) { return a.absolute.native() < b.absolute.native(); });
  const auto twice = std::adjacent_find(
      inputs.begin(), inputs.end(), [](const InputFile& a, const InputFile& b) { return a.absolute == b.absolute; });
  if (twice != inputs.end()) {
    throw Error(4006, twice->path.string(), "the input is named twice (also as " + (twice + 1)->path.string() + ")",
                "name each file once; folders are searched with all that is below them");
  }
  return inputs;
}

}  // namespace trireme::data
