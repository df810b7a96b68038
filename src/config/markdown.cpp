// docs/configuration.md, from the schema.
#include <algorithm>

#include "config/plan.h"
#include "config/schema.h"

namespace trireme::config {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Written by `trireme config docs` from the schema in src/config; do not edit by hand. -->

A run is described by one YAML file and by `key=value` settings after it:

    trireme train configs/quickstart.yaml training.max_steps=200 data.path=/data/tokens

The whole configuration is read and checked before any process starts. `trireme train --dry-run` prints every key with
its value and where it came from; `config.resolved.yaml` in the output folder has the same values and can be given to
`trireme train` again.

`trireme config diff A.yaml B.yaml` prints every key whose value differs between two configurations, with both values and
where they came from, and exits with 1 where one does. `trireme config schema` prints a JSON Schema (draft 2020-12) with
which editors complete and check a configuration while it is written; for those that use yaml-language-server:

    trireme config schema > trireme.schema.json
    # yaml-language-server: $schema=trireme.schema.json       as the first line of the configuration

The schema knows single keys; what fits together only `--dry-run` says. `trireme setup deepspeed` and `trireme setup fsdp`
write such tools' files; [coming-from.md](coming-from.md) says what stands for their commands and keys here.

## Rules

- A key stands in its block (`training:`, indented `max_steps: 200`) or is written with dots (`training.max_steps`).
- The command line wins over the file, the file over the default. A key given twice in one of them is an error; two
  names of one key may be given where they say the same.
- Keys of `training`, `distributed`, `checkpoint` and `monitor` may stand at the top of the file, by any of their names, as
  Trainer and flat dictionaries have them (below).
- A value on the command line is taken as it stands, to its last character; one that starts with `"` `'` `[` or `{` is
  read as YAML. `key=` and `key=null` unset a key that may be unset.
- Relative paths mean the working directory, in the file as on the command line. `~` is not expanded.
- Integers may be written `200`, `5e8` or `0x10`, where nothing is lost; `010` and `1_000` are refused. Numbers must be
  finite. True is `true`, `yes` or `on`; false is `false`, `no` or `off`. Words are accepted in any case, with `-` or
  `_`. Text and numbers may be quoted, true or false may not. `None` is null where a value may be unset.
- The file is UTF-8, at most 1 MiB, one YAML document whose root is a block of keys. Anchors, aliases, merge keys, tags,
  tabs in the indentation and control characters are refused.
- Unknown keys are errors, with the nearest known key. Names from other tools (below) are read with a notice. What this
  version cannot do yet is refused, never ignored.
)";

constexpr std::string_view kErrors = R"(
## Errors

All of these end the program with exit code 2, before anything was started or written.

| code | meaning |
| --- | --- |
| TR2100 | the file cannot be read |
| TR2101 | unknown key or block |
| TR2102 | a value of another type than the key takes |
| TR2103 | a key given twice |
| TR2104 | values that do not fit together |
| TR2105 | a value out of range |
| TR2106 | a required key is missing |
| TR2107 | not YAML |
| TR2108 | YAML or text of a kind that is refused |
| TR2109 | a setting on the command line that is not key=value |
| TR2110 | a size of the model that the folder of model.path contradicts |
| TR2111 | two sources that say different things of one key |
| TR2190 | known, but not there yet |
)";

std::string code(std::string_view text) {
  return "`" + std::string(text) + "`";
}

std::string code_list(const std::vector<std::string_view>& words) {
  std::string result;
  for (const std::string_view word : words) result += (result.empty() ? "" : ", ") + code(word);
  return result;
}

std::string default_cell(const Key& key) {
  const std::string text = default_text(key);
  const bool is_word = key.required || key.optional || !key.rule.empty();
  return is_word ? text : code(text);
}

std::string supported_block(std::string_view block) {
  const auto is_in_it = [&](const Key& key) { return key.tier == Tier::supported && block_of(key.name) == block; };
  if (std::none_of(keys().begin(), keys().end(), is_in_it)) return {};
  std::string result = "\n## " + (block.empty() ? std::string("Top of the file") : code(block)) + "\n\n";
  result += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const Key& key : keys()) {
    if (!is_in_it(key)) continue;
    result += "| " + code(key.name) + " | " + type_text(key) + " | " + default_cell(key) + " | " + std::string(key.doc);
    if (!key.choices_not_yet.empty()) result += " Not yet: " + code_list(key.choices_not_yet) + ".";
    result += " |\n";
  }
  return result;
}

std::string synonyms() {
  std::string result = "\n## Names from other tools\n\nRead with a notice, as the key beside them.\n\n";
  result += "| name | from | read as |\n| --- | --- | --- |\n";
  for (const Key& key : keys()) {
    for (const Alias& alias : key.aliases) {
      result += "| " + code(full_name(key, alias)) + " | " + std::string(alias.tool) + " | " + code(key.name);
      std::string sep = ": ";
      for (const Synonym& value : alias.values) {
        result += sep + code(value.word) + " is " + (value.meaning.empty() ? "the default" : code(value.meaning));
        sep = ", ";
      }
      result += " |\n";
    }
  }
  result += "\nOther words for values:\n\n| key | word | read as |\n| --- | --- | --- |\n";
  for (const Key& key : keys()) {
    for (const Synonym& value : key.value_synonyms) {
      const std::string meaning = value.meaning.empty() ? "nothing" : code(value.meaning);
      result += "| " + code(key.name) + " | " + code(value.word) + " | " + meaning + " |\n";
    }
  }
  return result;
}

std::string not_yet() {
  std::string result =
      "\n## Not yet\n\nKnown keys of things that this version cannot do. They are refused (TR2190) unless ";
  result += "they are empty or have one of the values in the second column.\n\n";
  result += "| key | accepted | what it will be |\n| --- | --- | --- |\n";
  for (const Key& key : keys()) {
    if (key.tier != Tier::not_yet) continue;
    result += "| " + code(key.name) + " | " + code_list(key.inert) + " | " + std::string(key.doc) + " |\n";
  }
  return result;
}

constexpr std::string_view kForeign = R"(
## Read by the tables of other tools

`use_deepspeed` and `use_fsdp` need not be given: a file, or a key of FSDP, turns the tool on. Paths in a configuration
are relative to its folder. What these say and what our own keys say must agree; the command line wins over keys in the
configuration, but not over the file of another tool. Keys that begin with `fsdp_` may stand at the top of the file too.

| key | what becomes of it |
| --- | --- |
)";

constexpr std::string_view kFlat = R"(
## Flat dictionaries

A file without the blocks `training`, `distributed`, `checkpoint` and `monitor` is a flat dictionary when it has keys of
them at the top. `model` and `data` are then blocks beside them, or come from the command line. It has these defaults,
which yield to anything that is set and are named as defaults wherever the plan is printed: batch_size 1, learning_rate
1e-4, zero_stage 2 (3 with offload_param), fp16 true (bf16 with nonfinite_gradients=stop), gradient_accumulation_steps 1,
gradient_clipping 1, no offloading, no activation_checkpointing, save_interval 1000, log_interval and steps_per_print 10.
)";

std::string foreign() {
  std::string result(kForeign);
  for (const Key& key : keys()) {
    if (key.tier == Tier::foreign) result += "| " + code(key.name) + " | " + std::string(key.doc) + " |\n";
  }
  return result;
}

std::string no_effect() {
  std::string result = "\n## Without effect\n\nRead with a notice; nothing follows from them here.\n\n";
  result += "| key | why |\n| --- | --- |\n";
  for (const Key& key : keys()) {
    if (key.tier == Tier::no_effect) result += "| " + code(key.name) + " | " + std::string(key.doc) + " |\n";
  }
  return result;
}

}  // namespace

std::string schema_as_markdown() {
  std::string result(kIntroduction);
  result += supported_block("");
  for (const std::string_view block : block_names()) result += supported_block(block);
  return result + synonyms() + not_yet() + no_effect() + foreign() + std::string(kFlat) + std::string(kErrors);
}

}  // namespace trireme::config
