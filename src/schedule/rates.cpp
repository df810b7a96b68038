#include "schedule/rates.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace trireme::schedule {
namespace {

constexpr int kBadRates = 2290;
constexpr const char* kMachine = "machine";

constexpr double kMost = 1e18;  // no machine is faster; keeps times apart from zero

struct Row {
  const char* name;
  double Rates::*value;
  double least, most;
  bool optional = false;
};
constexpr Row kRows[] = {{"flops_per_s", &Rates::flops_per_s, 1, kMost},
                         {"bytes_moved_per_s", &Rates::bytes_moved_per_s, 1, kMost},
                         {"optimizer_bytes_per_s", &Rates::optimizer_bytes_per_s, 1, kMost},
                         {"collective_latency_s", &Rates::collective_latency_s, 0, 3600},
                         {"collective_bytes_per_s", &Rates::collective_bytes_per_s, 1, kMost},
                         {"host_copy_bytes_per_s", &Rates::host_copy_bytes_per_s, 1, kMost, true}};

std::string list_of_names() {
  std::string names;
  for (const Row& row : kRows) {
    if (!row.optional) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

bool is_known(std::string_view key) {
  for (const Row& row : kRows) {
    if (key == row.name) return true;
  }
  return key == kMachine;
}

}  // namespace

std::string Rates::words() const {
  if (!source.empty()) return "rates of " + source;
  return "uncalibrated: default rates, measured on no machine; only the shape of the schedule is to be trusted";
}

Rates read_rates(const std::filesystem::path& file) {
  const nlohmann::json object = read_json_object(file, kBadRates);
  const auto fail = [&](const std::string& what) {
    throw Error(kBadRates, file.string(), what, "a file of rates has the numbers " + list_of_names());
  };
  for (const auto& [key, value] : object.items()) {
    if (!is_known(key)) fail("\"" + key.substr(0, 200) + "\" is no rate");
  }
  Rates rates;
  for (const Row& row : kRows) {
    const auto found = object.find(row.name);
    if (found == object.end() && row.optional) continue;
    if (found == object.end()) fail("has no " + std::string(row.name));
    const double value = found->is_number() ? found->get<double>() : NAN;
    if (!(value >= row.least && value <= row.most)) {
      fail(std::string(row.name) + " is " + found->dump().substr(0, 200) + ", not a number " +
           (row.least > 0 ? "from 1 to 1e18" : "from 0 to 3600"));
    }
    rates.*row.value = value;
  }
  rates.source = file.string();
  if (const auto machine = object.find(kMachine); machine != object.end()) {
    if (!machine->is_string()) fail("machine is " + machine->dump().substr(0, 200) + ", not a text");
    rates.source += " (" + machine->get<std::string>() + ")";
  }
  return rates;
}

}  // namespace trireme::schedule
