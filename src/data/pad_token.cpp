#include "data/pad_token.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer_files.h"

namespace trireme::data {
namespace {

// As Hugging Face writes it, a text or an object with "content"; empty where there is none.
std::string pad_token_in(const std::filesystem::path& config) {
  if (config.empty()) return {};
  const auto json = nlohmann::json::parse(read_file(config), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("pad_token")) return {};
  const nlohmann::json& token = json["pad_token"];
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string()) {
    return token["content"].get<std::string>();
  }
  return {};
}

}  // namespace

std::int32_t pad_token_of(const std::string& what, const std::string& wanted) {
  const auto tokenizer = load_tokenizer(what);
  const std::string token = wanted.empty() ? pad_token_in(find_tokenizer_files(what).config) : wanted;
  if (token.empty()) return tokenizer->end_of_document();
  const std::vector<std::int32_t> ids = tokenizer->encode(token);
  if (ids.size() == 1) return ids.front();
  if (wanted.empty()) return tokenizer->end_of_document();  // a name that the vocabulary does not have
  throw Error(4027, what,
              "data.pad_token is \"" + wanted.substr(0, 80) + "\", which is " + std::to_string(ids.size()) +
                  " tokens of this tokenizer",
              "name one of its tokens, or leave data.pad_token away");
}

}  // namespace trireme::data
