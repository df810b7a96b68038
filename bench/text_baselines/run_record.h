// What a finished run says about itself in metrics.jsonl.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme::baselines {

struct Evaluation {
  std::int64_t step = 0;
  double nats = 0;  // summed over the held-out labels
  std::uint64_t tokens = 0, bytes = 0;
};

// Which samples the run took: positions 0 .. data_position - 1 of its order.
struct Consumed {
  std::uint64_t data_position = 0, seed = 0;
  std::int64_t sequence_length = 0;
  bool document_borders = false;
};

struct RunRecord {
  std::optional<Evaluation> evaluation;  // the last one of the whole held-out split
  std::optional<Consumed> consumed;      // from the last event that has it, of a run over whole packed data
};

// Torn or foreign lines are passed over. Error TR3010 where there is no such file.
RunRecord read_run_record(const std::filesystem::path& metrics);

}  // namespace trireme::baselines
