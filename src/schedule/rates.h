// How fast one rank's processor and network are: what turns a schedule's operations and bytes into seconds.
#pragma once
#include <filesystem>
#include <string>

namespace trireme::schedule {

// All per rank, with its compute threads together. The defaults are orders of magnitude of a few processor cores on a
// local network, measured nowhere: whatever is computed from them must say so (words()).
struct Rates {
  double flops_per_s = 5e10;            // of the units; multiply and add count two
  double bytes_moved_per_s = 1e10;      // between processor and memory: units, ACCUMULATE, NORM
  double optimizer_bytes_per_s = 5e9;   // the same of STEP
  double collective_latency_s = 5e-5;   // until the first bytes of a collective's phase are there
  double collective_bytes_per_s = 1e9;  // that a rank sends, and receives at the same time; additions included
  double host_copy_bytes_per_s = 0;     // of the link to host memory; 0: as memory moves what is read and written
  std::string source;                   // where they were measured; empty: nowhere
  // "rates of FILE (machine)" or "uncalibrated: ...".
  std::string words() const;
  double copy_bytes_per_s() const { return host_copy_bytes_per_s > 0 ? host_copy_bytes_per_s : bytes_moved_per_s / 2; }
};

// A JSON object with the numbers of Rates under their names, each from 1 to 1e18 (the latency: 0 to 3600); optional are
// host_copy_bytes_per_s and "machine", a text. Throws Error TR2290 for what is no such object: a number that is missing
// or out of range, or any other key; TR2290 or TR3010 where the file cannot be read.
Rates read_rates(const std::filesystem::path& file);

}  // namespace trireme::schedule
