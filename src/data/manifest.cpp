#include "data/manifest.h"

#include <limits>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace trireme::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kVersion = 1;
constexpr const char* kFormat = "trireme-data";
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 60;  // sums of two and products with 4 stay below 2^64
// The self-digest is that of the text with this many zeros in the digest's place.
constexpr std::string_view kDigestPrefix = "{\n \"digest\": \"";
constexpr std::size_t kDigestDigits = 32;

std::string seal(std::string text) {
  text.replace(kDigestPrefix.size(), kDigestDigits, digest(text));
  return text;
}

bool is_sealed(std::string text) {
  if (!text.starts_with(kDigestPrefix) || text.size() < kDigestPrefix.size() + kDigestDigits) return false;
  const std::string claimed = text.substr(kDigestPrefix.size(), kDigestDigits);
  text.replace(kDigestPrefix.size(), kDigestDigits, kDigestDigits, '0');
  return digest(text) == claimed;
}

// Fields of an untrusted object: each is there, of its type and within its bounds, or Error TR4032 names it.
class Fields {
 public:
  Fields(const Json& object, std::string place, std::string name)
      : object_(object), place_(std::move(place)), name_(std::move(name)) {
    if (!object.is_object()) fail("is not an object");
  }

  std::uint64_t number(const char* key, std::uint64_t max) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > max) {
      fail(std::string(".") + key + " is not a whole number up to " + std::to_string(max));
    }
    return value.get<std::uint64_t>();
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) fail(std::string(".") + key + " is not a string");
    return value.get<std::string>();
  }
  bool flag(const char* key) const {
    const Json& value = at(key);
    if (!value.is_boolean()) fail(std::string(".") + key + " is not true or false");
    return value.get<bool>();
  }
  double share(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() < 1)) {
      fail(std::string(".") + key + " is not a share in [0, 1)");
    }
    return value.get<double>();
  }
  std::string hex_digest(const char* key) const {
    std::string value = text(key);
    if (value.size() != kDigestDigits || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail(std::string(".") + key + " is not a digest of 32 hex digits");
    }
    return value;
  }
  Fields object(const char* key) const { return {at(key), place_, name_ + "." + key}; }
  std::vector<Fields> list(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) fail(std::string(".") + key + " is not a list");
    std::vector<Fields> items;
    items.reserve(value.size());
    for (const Json& item : value) {
      items.emplace_back(item, place_, name_ + "." + key + "[" + std::to_string(items.size()) + "]");
    }
    return items;
  }
  const Json& json() const { return object_; }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(4032, place_, (name_.empty() ? "the manifest " : name_.substr(1)) + what,
                "prepare the data again into a fresh folder");
  }

 private:
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(std::string(" has no field \"") + key + "\"");
    return *found;
  }
  const Json& object_;
  std::string place_, name_;
};

Json to_json(const SplitEntry& split, const std::string& name, int token_bytes) {
  Json shards = Json::array();
  for (std::size_t i = 0; i < split.shards.size(); ++i) {
    const ShardEntry& shard = split.shards[i];
    shards.push_back({{"file", shard_name(name, i)},
                      {"tokens", shard.tokens},
                      {"bytes", shard.tokens * static_cast<std::uint64_t>(token_bytes)},
                      {"digest", shard.digest}});
  }
  return {{"documents", split.documents},
          {"tokens", split.tokens},
          {"bytes", split.bytes},
          {"shards", std::move(shards)},
          {"document_ends", {{"file", documents_name(name)}, {"digest", split.documents_digest}}}};
}

SplitEntry read_split(const Fields& fields, const std::string& name, int token_bytes) {
  SplitEntry split;
  split.tokens = fields.number("tokens", kMaxTokens);
  split.documents = fields.number("documents", split.tokens);
  split.bytes = fields.number("bytes", kMaxTokens);
  std::uint64_t tokens = 0;
  for (const Fields& item : fields.list("shards")) {
    ShardEntry shard;
    // Only the one name that a writer of ours gives: a path in here must not lead elsewhere.
    if (item.text("file") != shard_name(name, split.shards.size())) item.fail(".file is not the name of a shard");
    shard.tokens = item.number("tokens", kMaxTokens);
    const std::uint64_t bytes = item.number("bytes", 4 * kMaxTokens);
    if (shard.tokens == 0 || bytes != shard.tokens * static_cast<std::uint64_t>(token_bytes)) {
      item.fail(".bytes does not fit .tokens");
    }
    shard.digest = item.hex_digest("digest");
    tokens += shard.tokens;
    if (tokens > split.tokens) item.fail(".tokens: the shards hold more than the split");
    split.shards.push_back(std::move(shard));
  }
  if (tokens != split.tokens) fields.fail(".tokens is not the sum over the shards");
  if ((split.documents == 0) != (split.tokens == 0)) fields.fail(".documents does not fit .tokens");
  const Fields ends = fields.object("document_ends");
  if (ends.text("file") != documents_name(name)) ends.fail(".file is not the name of the split's document ends");
  split.documents_digest = ends.hex_digest("digest");
  return split;
}

void read_inputs(const Fields& fields, Manifest& manifest) {
  for (const Fields& item : fields.list("inputs")) {
    manifest.inputs.push_back(
        {item.text("path"), item.number("bytes", std::numeric_limits<std::int64_t>::max()), item.hex_digest("digest")});
  }
  const Fields counts = fields.object("malformed_counts");
  for (const auto& entry : counts.json().items()) {
    manifest.malformed_counts[entry.key()] = counts.number(entry.key().c_str(), kMaxTokens);
  }
  for (const Fields& item : fields.list("malformed")) {
    if (manifest.inputs.empty()) item.fail(" names an input, but there is none");
    manifest.malformed.push_back({item.text("kind"), item.number("input", manifest.inputs.size() - 1),
                                  item.number("line", kMaxTokens), item.number("byte", kMaxTokens)});
  }
}

Json parse(const std::string& text, const std::string& place) {
  // Without a cause: the parser's words speak of its own inside.
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    throw Error(4032, place, "is not JSON", "the file was cut or edited; prepare the data again into a fresh folder");
  }
  return json;
}

std::string numbered(std::uint64_t index) {
  std::string digits = std::to_string(index);
  return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits : digits;
}

}  // namespace

std::string shard_name(const std::string& split, std::uint64_t index) {
  return split + "-" + numbered(index) + ".tokens";
}

std::string documents_name(const std::string& split) {
  return split + ".documents";
}

std::string to_text(const Manifest& manifest) {
  Json inputs = Json::array();
  for (const InputEntry& input : manifest.inputs) {
    inputs.push_back({{"path", input.path}, {"bytes", input.bytes}, {"digest", input.digest}});
  }
  Json malformed = Json::array();
  for (const MalformedEntry& entry : manifest.malformed) {
    malformed.push_back({{"kind", entry.kind}, {"input", entry.input}, {"line", entry.line}, {"byte", entry.byte}});
  }
  Json counts = Json::object();
  for (const auto& [kind, count] : manifest.malformed_counts) counts[kind] = count;
  const PreparedOptions& options = manifest.options;
  const Json json = {
      {"digest", std::string(kDigestDigits, '0')},
      {"format", kFormat},
      {"version", kVersion},
      {"tokenizer",
       {{"kind", manifest.tokenizer_kind},
        {"digest", manifest.tokenizer_digest},
        {"vocabulary", manifest.vocabulary},
        {"end_of_document", manifest.end_of_document},
        {"folder", kTokenizerFolder}}},
      {"token_bytes", manifest.token_bytes()},
      {"options",
       {{"text_field", options.text_field},
        {"held_out", options.held_out},
        {"on_malformed", options.skip_malformed ? "skip" : "stop"},
        {"max_record_bytes", options.max_record_bytes},
        {"shard_tokens", options.shard_tokens}}},
      {"held_out_rule", manifest.held_out_rule},
      {"splits",
       {{"train", to_json(manifest.train, "train", manifest.token_bytes())},
        {"heldout", to_json(manifest.heldout, "heldout", manifest.token_bytes())}}},
      {"malformed_counts", std::move(counts)},
      {"malformed", std::move(malformed)},
      {"inputs", std::move(inputs)},
  };
  // Names of files need not be UTF-8, JSON must be.
  return seal(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  const std::string place = path.string();
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) {
    throw Error(4031, folder.string(), "holds no prepared data: there is no manifest.json (" + error.message() + ")",
                "make it with `trireme data prepare INPUT --output " + folder.string() + "`");
  }
  if (size > kMaxManifestBytes) throw Error(4032, place, "is " + std::to_string(size) + " bytes long: not a manifest");
  const std::string text = read_file(path);
  const Json json = parse(text, place);
  const Fields root(json, place, "");
  if (root.text("format") != kFormat) root.fail(".format is not \"" + std::string(kFormat) + "\"");
  if (root.number("version", std::numeric_limits<std::int64_t>::max()) != kVersion) {
    throw Error(4033, place,
                "has format version " + std::to_string(root.number("version", ~0ull >> 1)) +
                    "; this program reads version " + std::to_string(kVersion),
                "prepare the data again with this program");
  }
  if (!is_sealed(text)) root.fail("does not have the digest that it names: it was cut or edited");

  Manifest manifest;
  const Fields tokenizer = root.object("tokenizer");
  manifest.tokenizer_kind = tokenizer.text("kind");
  manifest.tokenizer_digest = tokenizer.text("digest");
  manifest.vocabulary = static_cast<std::int64_t>(tokenizer.number("vocabulary", 0x7fffffff));
  if (manifest.vocabulary == 0) tokenizer.fail(".vocabulary is 0");
  manifest.end_of_document = static_cast<std::int32_t>(
      tokenizer.number("end_of_document", static_cast<std::uint64_t>(manifest.vocabulary) - 1));
  const Fields options = root.object("options");
  manifest.options = {options.text("text_field"), options.share("held_out"), options.text("on_malformed") == "skip",
                      options.number("max_record_bytes", kMaxTokens), options.number("shard_tokens", kMaxTokens)};
  manifest.held_out_rule = root.text("held_out_rule");
  const Fields splits = root.object("splits");
  manifest.train = read_split(splits.object("train"), "train", manifest.token_bytes());
  manifest.heldout = read_split(splits.object("heldout"), "heldout", manifest.token_bytes());
  read_inputs(root, manifest);
  return manifest;
}

std::string data_digest(const Manifest& manifest) {
  std::string text = "trireme-data " + manifest.tokenizer_digest + " " + std::to_string(manifest.vocabulary) + " " +
                     std::to_string(manifest.end_of_document);
  for (const SplitEntry* split : {&manifest.train, &manifest.heldout}) {
    text +=
        "\n" + std::to_string(split->documents) + " " + std::to_string(split->bytes) + " " + split->documents_digest;
    for (const ShardEntry& shard : split->shards) text += " " + std::to_string(shard.tokens) + " " + shard.digest;
  }
  return digest(text);
}

}  // namespace trireme::data
