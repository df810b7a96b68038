#include "text_baselines/run_record.h"

#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace trireme::baselines {
namespace {

using Json = nlohmann::json;

bool has_all(const Json& event, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = event.find(key);
    if (found == event.end() || !(found->is_number() || found->is_boolean())) return false;
  }
  return true;
}

// Packed samples of all documents, shuffled: what a run without these fields took.
bool took_all_as_packed_samples(const Json& event) {
  const Json expected = {{"packing", "packed"}, {"split", "train"}, {"max_samples", 0}, {"shuffle", true}};
  for (const auto& [key, value] : expected.items()) {
    if (event.contains(key) && event[key] != value) return false;
  }
  return true;
}

}  // namespace

RunRecord read_run_record(const std::filesystem::path& metrics) {
  RunRecord record;
  std::istringstream lines(read_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event")) continue;
    if (event["event"] == "eval" && has_all(event, {"step", "nats", "tokens", "bytes"})) {
      record.evaluation = {event["step"].get<std::int64_t>(), event["nats"].get<double>(),
                           event["tokens"].get<std::uint64_t>(), event["bytes"].get<std::uint64_t>()};
    }
    if (has_all(event, {"data_position", "seed", "sequence_length", "document_borders"}) &&
        took_all_as_packed_samples(event)) {
      record.consumed = {event["data_position"].get<std::uint64_t>(), event["seed"].get<std::uint64_t>(),
                         event["sequence_length"].get<std::int64_t>(), event["document_borders"].get<bool>()};
    }
  }
  return record;
}

}  // namespace trireme::baselines
