// How fast one rank's processor and network are: what turns a schedule's operations and bytes into seconds.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme::schedule {

// What rates hold for.
struct RatesKey {
  std::string processor;  // "Intel(R) Xeon(R) Processor"
  int threads = 0;        // compute threads of a rank
  std::string build;      // version and kernel level
  bool operator==(const RatesKey&) const = default;
};

// All per rank, with its compute threads together. The defaults are orders of magnitude of a few processor cores on a
// local network, measured nowhere: whatever is computed from them must say so (words()).
struct Rates {
  double flops_per_s = 5e10;            // of the units; multiply and add count two
  double bytes_moved_per_s = 1e10;      // between processor and memory: units, ACCUMULATE, NORM
  double optimizer_bytes_per_s = 5e9;   // the same of STEP
  double collective_latency_s = 5e-5;   // until the first bytes of a collective's phase are there
  double collective_bytes_per_s = 1e9;  // that a rank sends, and receives at the same time; additions included

  double host_copy_bytes_per_s = 0;       // of the link to host memory; 0: as memory moves what is read and written
  double host_optimizer_bytes_per_s = 0;  // of STEP where a device's state is in host memory; 0: as on the device

  // A device, whose kernels compute or move: a unit takes both times, one after the other, and not the longer of them.
  bool of_device = false;

  // More closely, where it was measured; 0: it was not, and the numbers above hold.
  double loaded_collective_bytes_per_s = 0;   // while the compute lane works
  struct Operations {                         // a second
    double small = 0, medium = 0, large = 0;  // of matrix products whose smallest side is below 256, below 1,024, above
    double attention = 0;
  };
  Operations fp32, half;  // of elements of four bytes and of two

  RatesKey measured_on;  // empty where the file does not say
  std::string source;    // the file; empty: nowhere

  double product_flops_per_s(std::int64_t element_bytes, std::int64_t smallest_side) const;
  double attention_flops_per_s(std::int64_t element_bytes) const;
  double update_bytes_per_s(bool on_host) const;
  double gradient_bytes_per_s() const;  // of gathers and reductions, which run beside units

  // "rates of FILE (machine)" or "uncalibrated: ...".
  std::string words() const;
  double copy_bytes_per_s() const { return host_copy_bytes_per_s > 0 ? host_copy_bytes_per_s : bytes_moved_per_s / 2; }
};

// A JSON object with the first five numbers of Rates under their names, each from 1 to 1e18 (the latency: 0 to 3600),
// and optionally "machine", a text. Throws Error TR2290 for what is no such object: a number that is missing or out of
// range, or any other key; TR2290 or TR3010 where the file cannot be read.
// The numbers beside these five may be there too, under the names of Rates ("fp32" and "half" objects of four), and
// "device" (of_device), "processor", "threads" (1 to 65536), "build". No file is larger than 64 KiB.
Rates read_rates(const std::filesystem::path& file);

// What read_rates() takes, with the key and `machine`.
std::string to_json(const Rates& rates, const std::string& machine);

// Where `trireme bench` leaves the rates of this key, and others look for them: below $XDG_CACHE_HOME or ~/.cache.
// Empty where there is neither.
std::filesystem::path rates_file(const RatesKey& key);

// The rates of this key where they were measured, else the defaults. Throws as read_rates() for a file that is wrong,
// and TR2291 where it holds another key.
Rates find_rates(const RatesKey& key);

}  // namespace trireme::schedule
