#include "schedule/rates.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace trireme::schedule {
namespace {

constexpr int kBadRates = 2290, kOtherKey = 2291;
constexpr std::uintmax_t kMostBytes = 64 << 10;

constexpr double kMost = 1e18;  // no machine is faster; keeps times apart from zero

template <class Object>
struct Row {
  const char* name;
  double Object::*value;
  double least, most;
  bool is_needed;
};
constexpr Row<Rates> kRows[] = {
    {"flops_per_s", &Rates::flops_per_s, 1, kMost, true},
    {"bytes_moved_per_s", &Rates::bytes_moved_per_s, 1, kMost, true},
    {"optimizer_bytes_per_s", &Rates::optimizer_bytes_per_s, 1, kMost, true},
    {"collective_latency_s", &Rates::collective_latency_s, 0, 3600, true},
    {"collective_bytes_per_s", &Rates::collective_bytes_per_s, 1, kMost, true},
    {"loaded_collective_bytes_per_s", &Rates::loaded_collective_bytes_per_s, 1, kMost, false},
    {"host_copy_bytes_per_s", &Rates::host_copy_bytes_per_s, 1, kMost, false},
    {"host_optimizer_bytes_per_s", &Rates::host_optimizer_bytes_per_s, 1, kMost, false}};
using Operations = Rates::Operations;
constexpr Row<Operations> kOperations[] = {{"small", &Operations::small, 1, kMost, true},
                                           {"medium", &Operations::medium, 1, kMost, true},
                                           {"large", &Operations::large, 1, kMost, true},
                                           {"attention", &Operations::attention, 1, kMost, true}};
struct Part {
  const char* name;
  Operations Rates::*value;
};
constexpr Part kParts[] = {{"fp32", &Rates::fp32}, {"half", &Rates::half}};
constexpr const char *kMachine = "machine", *kProcessor = "processor", *kThreads = "threads", *kBuild = "build",
                     *kDevice = "device";

// Reads one object, whose keys it takes away.
class Reader {
 public:
  Reader(nlohmann::json object, std::string place) : object_(std::move(object)), place_(std::move(place)) {}

  [[noreturn]] void fail(const std::string& what) const {
    std::string names;
    for (const auto& row : kRows) {
      if (row.is_needed) names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    throw Error(kBadRates, place_, what, "a file of rates has the numbers " + names + "; `trireme bench` writes one");
  }

  template <class Object, std::size_t N>
  void numbers(const Row<Object> (&rows)[N], Object& into) {
    for (const Row<Object>& row : rows) {
      const auto found = take(row.name);
      if (!found) {
        if (row.is_needed) fail("has no " + std::string(row.name));
        continue;
      }
      const double value = found->is_number() ? found->template get<double>() : NAN;
      if (!(value >= row.least && value <= row.most)) {
        fail(std::string(row.name) + " is " + found->dump().substr(0, 200) + ", not a number " +
             (row.least > 0 ? "from 1 to 1e18" : "from 0 to 3600"));
      }
      into.*row.value = value;
    }
  }

  std::string text(const char* name) {
    const auto found = take(name);
    if (!found) return {};
    if (!found->is_string()) fail(std::string(name) + " is " + found->dump().substr(0, 200) + ", not a text");
    return found->get<std::string>().substr(0, 200);
  }

  int threads() {
    const auto found = take(kThreads);
    if (!found) return 0;
    const std::int64_t count = found->is_number_integer() ? found->get<std::int64_t>() : 0;
    if (count < 1 || count > 65536) fail("threads is " + found->dump().substr(0, 200) + ", not from 1 to 65536");
    return static_cast<int>(count);
  }

  bool flag(const char* name) {
    const auto found = take(name);
    if (found && !found->is_boolean())
      fail(std::string(name) + " is " + found->dump().substr(0, 200) + ", not true or false");
    return found && found->get<bool>();
  }

  std::optional<Reader> part(const char* name) {
    const auto found = take(name);
    if (!found) return std::nullopt;
    if (!found->is_object()) fail(std::string(name) + " is " + found->dump().substr(0, 200) + ", not an object");
    return Reader(*found, place_ + ": " + name);
  }

  void end() const {
    if (!object_.empty()) fail("\"" + object_.begin().key().substr(0, 200) + "\" is no rate");
  }

 private:
  std::optional<nlohmann::json> take(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end()) return std::nullopt;
    nlohmann::json value = *found;
    object_.erase(found);
    return value;
  }

  nlohmann::json object_;
  std::string place_;
};

double either(double closer, double otherwise) {
  return closer > 0 ? closer : otherwise;
}

}  // namespace

double Rates::product_flops_per_s(std::int64_t element_bytes, std::int64_t smallest_side) const {
  const Operations& rates = element_bytes == 2 ? half : fp32;
  return either(smallest_side < 256 ? rates.small : smallest_side < 1024 ? rates.medium : rates.large, flops_per_s);
}

double Rates::attention_flops_per_s(std::int64_t element_bytes) const {
  return either((element_bytes == 2 ? half : fp32).attention, flops_per_s);
}

double Rates::update_bytes_per_s(bool on_host) const {
  return either(on_host ? host_optimizer_bytes_per_s : 0, optimizer_bytes_per_s);
}

double Rates::gradient_bytes_per_s() const {
  return either(loaded_collective_bytes_per_s, collective_bytes_per_s);
}

std::string Rates::words() const {
  if (!source.empty()) return "rates of " + source;
  return "uncalibrated: default rates, measured on no machine; only the shape of the schedule is to be trusted";
}

Rates read_rates(const std::filesystem::path& file) {
  std::error_code unknown;
  const std::uintmax_t bytes = std::filesystem::file_size(file, unknown);
  if (!unknown && bytes > kMostBytes) {
    throw Error(kBadRates, file.string(), "has " + std::to_string(bytes) + " bytes; rates are a few numbers");
  }
  Reader reader(read_json_object(file, kBadRates), file.string());
  Rates rates;
  reader.numbers(kRows, rates);
  for (const Part& part : kParts) {
    if (std::optional<Reader> inner = reader.part(part.name)) {
      inner->numbers(kOperations, rates.*part.value);
      inner->end();
    }
  }
  rates.of_device = reader.flag(kDevice);
  rates.measured_on.processor = reader.text(kProcessor);
  rates.measured_on.threads = reader.threads();
  rates.measured_on.build = reader.text(kBuild);
  rates.source = file.string();
  if (const std::string machine = reader.text(kMachine); !machine.empty()) rates.source += " (" + machine + ")";
  reader.end();
  return rates;
}

std::string to_json(const Rates& rates, const std::string& machine) {
  nlohmann::ordered_json object;
  object[kProcessor] = rates.measured_on.processor;
  object[kThreads] = rates.measured_on.threads;
  object[kBuild] = rates.measured_on.build;
  if (rates.of_device) object[kDevice] = true;
  if (!machine.empty()) object[kMachine] = machine;
  for (const auto& row : kRows) {
    if (row.is_needed || rates.*row.value > 0) object[row.name] = rates.*row.value;
  }
  for (const Part& part : kParts) {
    const Operations& operations = rates.*part.value;
    if (operations.large == 0) continue;
    for (const auto& row : kOperations) object[part.name][row.name] = operations.*row.value;
  }
  return object.dump(2) + "\n";
}

std::filesystem::path rates_file(const RatesKey& key) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  const std::string text = key.processor + "\n" + std::to_string(key.threads) + "\n" + key.build;
  return folder / ("rates-" + digest(std::string_view(text)).substr(0, 16) + ".json");
}

Rates find_rates(const RatesKey& key) {
  const std::filesystem::path file = rates_file(key);
  std::error_code unknown;
  if (file.empty() || !std::filesystem::exists(file, unknown)) return {};
  Rates rates = read_rates(file);
  if (rates.measured_on != key) {
    throw Error(kOtherKey, file.string(),
                "was measured on " + rates.measured_on.processor + " with " +
                    std::to_string(rates.measured_on.threads) + " threads by " + rates.measured_on.build +
                    ", not on this machine",
                "delete it and run `trireme bench`");
  }
  return rates;
}

}  // namespace trireme::schedule
