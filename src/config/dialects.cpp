#include "config/dialects.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "config/json.h"
#include "config/value.h"

namespace trireme::config {
namespace {

constexpr std::string_view kUseDeepSpeed = "distributed.use_deepspeed", kDeepSpeed = "distributed.deepspeed_config",
                           kUseFsdp = "distributed.use_fsdp", kFsdp = "distributed.fsdp_config";

PlaceOf places_in(const std::filesystem::path& file) {
  return [place = file.string()](Mark mark) { return at(place, mark); };
}

class Reader {
 public:
  Reader(const Settings& configuration, const Settings& command_line, const std::string& place, ToolFiles given)
      : folder_(std::filesystem::path(place).parent_path()), files_(std::move(given)) {
    for (const Settings* settings : {&command_line, &configuration}) {
      for (const ForeignPart& part : settings->foreign) parts_.push_back(&part);
    }
  }

  std::vector<Translation> read() {
    fsdp_is_asked_for_ = !files_.fsdp.empty();
    name_file(kDeepSpeed, kUseDeepSpeed, files_.deepspeed);
    name_file(kFsdp, kUseFsdp, files_.fsdp);
    std::vector<Translation> result;
    if (!files_.accelerate.empty()) {
      result.emplace_back(accelerate_dialect());
      result.back().take(read_document(read_configuration(files_.accelerate), files_.accelerate.string()),
                         files_.accelerate.string());
      name_file_of(result.back());
    }
    Translation deepspeed = read_deepspeed(), fsdp = read_fsdp(result.empty() ? nullptr : &result.front());
    check_switches(!deepspeed.empty());
    for (Translation* translation : {&deepspeed, &fsdp}) {
      if (!translation->empty()) result.push_back(std::move(*translation));
    }
    return result;
  }

 private:
  // The command line's before the configuration's.
  const ForeignPart* find(std::string_view key) const {
    const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const ForeignPart* part) {
      return part->key->name == key && part->entry.value.kind != YamlNode::Kind::null;
    });
    return found == parts_.end() ? nullptr : *found;
  }

  bool says(std::string_view key, bool value) const {
    const ForeignPart* part = find(key);
    return part != nullptr && parse_bool(part->entry.value.text) == value;
  }

  std::string place_of(const ForeignPart& part) const { return part.place_of(part.entry.value.mark); }

  // The file that a key names, unless its switch is off.
  void name_file(std::string_view key, std::string_view use, std::filesystem::path& file) const {
    const ForeignPart* part = find(key);
    if (part == nullptr || part->entry.value.kind == YamlNode::Kind::block || says(use, false)) return;
    if (part->entry.value.kind != YamlNode::Kind::scalar) {
      throw Error(2102, place_of(*part), std::string(key) + " is a list", "it takes the path of a file, or its keys");
    }
    if (part->entry.value.text.empty()) return;
    const bool is_in_file = part->source == Source::configuration;
    const std::filesystem::path path = (is_in_file ? folder_ : std::filesystem::path()) / part->entry.value.text;
    if (!file.empty() && file.lexically_normal() != path.lexically_normal()) {
      throw Error(2111, place_of(*part), "names " + path.string() + ", but " + file.string() + " is given too",
                  "name the file in one place");
    }
    file = path;
  }

  // DeepSpeed's file that accelerate's names, relative to it.
  void name_file_of(const Translation& accelerate) {
    const ForeignValue* named = accelerate.find("deepspeed_config.deepspeed_config_file");
    if (named == nullptr) return;
    const std::filesystem::path path = files_.accelerate.parent_path() / named->node.text;
    if (!files_.deepspeed.empty() && files_.deepspeed.lexically_normal() != path.lexically_normal()) {
      throw Error(2111, named->place, "names " + path.string() + ", but " + files_.deepspeed.string() + " is given too",
                  "name the file in one place");
    }
    files_.deepspeed = path;
  }

  void add_block(std::string_view key, Translation& to) const {
    const ForeignPart* part = find(key);
    if (part == nullptr || part->entry.value.kind != YamlNode::Kind::block) return;
    to.add(part->entry.value, part->place_of, part->source);
  }

  Translation read_deepspeed() const {
    Translation deepspeed(deepspeed_dialect());
    if (!files_.deepspeed.empty()) {
      const std::string place = files_.deepspeed.string();
      deepspeed.add(read_json(read_configuration(files_.deepspeed), place), places_in(place), Source::tool_file);
    }
    if (!says(kUseDeepSpeed, false)) add_block(kDeepSpeed, deepspeed);
    if (!deepspeed.empty()) deepspeed.finish();
    return deepspeed;
  }

  // Keys of the command line first: they win over the configuration's.
  Translation read_fsdp(const Translation* accelerate) const {
    Translation fsdp(fsdp_dialect());
    add_parts(Source::command_line, fsdp);
    if (!files_.fsdp.empty()) {
      const std::string place = files_.fsdp.string();
      fsdp.add(read_json(read_configuration(files_.fsdp), place), places_in(place), Source::tool_file);
    }
    add_block(kFsdp, fsdp);
    const ForeignValue* map = accelerate == nullptr ? nullptr : accelerate->find("fsdp_config");
    if (map != nullptr) fsdp.add(map->node, places_in(files_.accelerate), Source::tool_file);
    add_parts(Source::configuration, fsdp);
    if (!fsdp.empty()) fsdp.finish();
    return fsdp;
  }

  void add_parts(Source source, Translation& to) const {
    for (const ForeignPart* part : parts_) {
      const std::string_view key = part->key->name;
      const bool is_elsewhere = key == kUseDeepSpeed || key == kDeepSpeed || key == kFsdp;
      // A file on the command line is a switch of its own.
      const bool is_overruled = key == kUseFsdp && source == Source::configuration && fsdp_is_asked_for_;
      if (part->source != source || is_elsewhere || is_overruled) continue;
      to.add(YamlNode{.kind = YamlNode::Kind::block, .entries = {part->entry}}, part->place_of, source);
    }
  }

  void check_switches(bool has_deepspeed) const {
    for (const std::string_view key : {kUseDeepSpeed, kUseFsdp}) {
      const ForeignPart* part = find(key);
      if (part == nullptr) continue;
      const Key as_switch{.name = key, .type = Type::boolean};
      read_value(as_switch, part->entry.value, place_of(*part));
    }
    if (says(kUseDeepSpeed, true) && !has_deepspeed) {
      throw Error(2104, place_of(*find(kUseDeepSpeed)), "distributed.use_deepspeed is true, but no file says how",
                  "name DeepSpeed's file: distributed.deepspeed_config, or --deepspeed FILE");
    }
    if (has_deepspeed && says(kUseFsdp, true)) {
      throw Error(2111, place_of(*find(kUseFsdp)), "distributed.use_fsdp is true, but DeepSpeed is on too",
                  "keep one of them: both decide what each rank stores");
    }
  }

  std::filesystem::path folder_;
  ToolFiles files_;
  std::vector<const ForeignPart*> parts_;
  bool fsdp_is_asked_for_ = false;
};

}  // namespace

std::vector<Translation> read_tools(const Settings& configuration, const Settings& command_line,
                                    const std::string& place, ToolFiles given) {
  return Reader(configuration, command_line, place, std::move(given)).read();
}

}  // namespace trireme::config
