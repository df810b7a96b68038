#include "data/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "data/bpe_tokenizer.h"
#include "data/tokenizer_files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kByteMarker = "trireme_byte_tokenizer.json";
constexpr std::string_view kByteMarkerText = "{\"kind\": \"bytes\", \"version\": 1}\n";
// Not read here, but part of what others take for the tokenizer: kept when it is saved.
constexpr const char* kCompanions[] = {"special_tokens_map.json", "chat_template.jinja", "tokenizer.model"};
constexpr const char* kAllNames[] = {"tokenizer.json",        "vocab.json",        "merges.txt",
                                     "tokenizer_config.json", "added_tokens.json", kByteMarker};

void add_if_present(const fs::path& file, std::vector<fs::path>& all) {
  if (fs::is_regular_file(file)) all.push_back(file);
}

TokenizerFiles find_in_folder(const fs::path& folder) {
  TokenizerFiles found{.folder = folder};
  if (fs::is_regular_file(folder / "tokenizer.json")) {
    found.format = TokenizerFormat::tokenizer_json;
    found.main_file = folder / "tokenizer.json";
    found.all = {found.main_file};
  } else if (fs::is_regular_file(folder / "vocab.json") && fs::is_regular_file(folder / "merges.txt")) {
    found.format = TokenizerFormat::vocab_merges;
    found.main_file = folder / "vocab.json";
    found.all = {found.main_file, folder / "merges.txt"};
    add_if_present(folder / "added_tokens.json", found.all);
  } else if (fs::is_regular_file(folder / kByteMarker)) {
    found.main_file = folder / kByteMarker;
    found.all = {found.main_file};
    return found;
  } else {
    throw Error(4100, folder.string(), "the folder holds no tokenizer",
                "it needs tokenizer.json, or vocab.json and merges.txt; or use tokenizer: bytes");
  }
  if (fs::is_regular_file(folder / "tokenizer_config.json")) {
    found.config = folder / "tokenizer_config.json";
    found.all.push_back(found.config);
  }
  return found;
}

}  // namespace

TokenizerFiles find_tokenizer_files(const std::string& what) {
  if (what == "bytes") return {};
  const fs::path path(what);
  std::error_code status;
  if (fs::is_directory(path, status)) return find_in_folder(path);
  if (fs::is_regular_file(path, status)) {
    if (path.filename() == "tokenizer.json" || path.filename() == "vocab.json") {
      const fs::path parent = path.parent_path();
      TokenizerFiles found = find_in_folder(parent.empty() ? fs::path(".") : parent);
      if (found.main_file.filename() == path.filename()) return found;
    }
    throw Error(4100, what, "is a file, but not the tokenizer.json of a folder",
                "give the folder or its tokenizer.json");
  }
  throw Error(4100, what, "no such tokenizer", "give \"bytes\", a folder or a tokenizer.json");
}

std::string Tokenizer::decode(const std::int32_t* ids, std::size_t count, bool skip_special) const {
  std::string text;
  DecodeState state;
  for (std::size_t i = 0; i < count; ++i) decode_next(ids[i], skip_special, state, text);
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& what) {
  const TokenizerFiles files = find_tokenizer_files(what);
  if (files.format != TokenizerFormat::bytes) return load_bpe_tokenizer(files);
  if (!files.main_file.empty() && read_file(files.main_file) != kByteMarkerText) {
    throw Error(4101, files.main_file.string(), "is not the marker file that this version writes",
                "save the tokenizer anew, or give tokenizer: bytes");
  }
  return make_byte_tokenizer();
}

void save_tokenizer(const std::string& what, const fs::path& folder) {
  const TokenizerFiles files = find_tokenizer_files(what);
  fs::create_directories(folder);
  std::error_code status;
  if (!files.folder.empty() && fs::equivalent(files.folder, folder, status)) return;
  std::vector<std::string> names;
  for (const fs::path& file : files.all) names.push_back(file.filename().string());
  if (names.empty()) names.emplace_back(kByteMarker);
  for (const char* name : kAllNames) {
    if (std::find(names.begin(), names.end(), name) == names.end() && fs::exists(folder / name)) {
      throw Error(4102, (folder / name).string(), "belongs to another tokenizer than " + what,
                  "save into an empty folder, or remove that file");
    }
  }
  if (files.all.empty()) write_file_atomic(folder / kByteMarker, kByteMarkerText);
  for (const fs::path& file : files.all) write_file_atomic(folder / file.filename(), read_file(file));
  if (files.folder.empty()) return;
  for (const char* name : kCompanions) {
    if (fs::is_regular_file(files.folder / name)) write_file_atomic(folder / name, read_file(files.folder / name));
  }
}

}  // namespace trireme::data
