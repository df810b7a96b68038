// Keys that name the files of other tools, and those that another tool's table reads.
#include <deque>
#include <string>

#include "config/dialects.h"
#include "config/schema_rows.h"

namespace trireme::config {
namespace {

Key foreign(std::string_view name, std::string_view doc, std::vector<Alias> aliases = {}) {
  return {.name = name,
          .type = Type::any,
          .tier = Tier::foreign,
          .optional = true,
          .aliases = std::move(aliases),
          .doc = doc};
}

std::string doc_of(const ForeignKey& row) {
  if (!row.key.empty()) return std::string(row.key);
  const bool is_reason = row.fate == Fate::no_effect || row.fate == Fate::refused;
  return (is_reason ? std::string(to_string(row.fate)) + ": " : "") + std::string(row.doc);
}

// distributed.NAME for each key of FSDP's table that cannot be taken for one of ours.
std::vector<Key> keys_of_fsdp() {
  static std::deque<std::string> texts;  // what the rows point to
  const auto keep = [](std::string text) -> std::string_view { return texts.emplace_back(std::move(text)); };
  std::vector<Key> rows;
  for (const ForeignKey& row : fsdp_dialect().keys) {
    if (!row.name.starts_with("fsdp_") || row.name.find('.') != std::string_view::npos) continue;
    Key key = foreign(keep("distributed." + std::string(row.name)), keep(doc_of(row)));
    for (const std::string_view name : row.names) {
      if (name.find('.') == std::string_view::npos) key.aliases.push_back({name, kFsdp});
    }
    rows.push_back(std::move(key));
  }
  return rows;
}

}  // namespace

std::vector<Key> foreign_keys() {
  std::vector<Key> rows = {
      foreign("distributed.use_deepspeed", "false: deepspeed_config is not read. true: it must be there."),
      foreign("distributed.deepspeed_config", "DeepSpeed's JSON: its path, or its keys as a block.",
              {{"training.deepspeed", kHuggingFace}}),
      foreign("distributed.use_fsdp",
              "true: distributed.strategy is full_shard unless it is set. false: no key of FSDP has an effect."),
      foreign("distributed.fsdp_config", "FSDP's options, with or without fsdp_: the path of a JSON file, or a block.",
              {{"training.fsdp_config", kHuggingFace}}),
      foreign("distributed.fsdp", "transformers' words: a strategy, auto_wrap, offload; or true or false.",
              {{"training.fsdp", kHuggingFace}}),
  };
  append(rows, keys_of_fsdp());
  return rows;
}

}  // namespace trireme::config
