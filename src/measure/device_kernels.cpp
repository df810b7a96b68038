#include "measure/device_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "measure/device_cases.h"
#include "measure/timing.h"

namespace trireme::measure {
namespace {

constexpr std::int64_t kPattern = std::int64_t{1} << 24;  // elements
constexpr std::int64_t kAllSets = std::int64_t{4} << 30;  // bytes, many times what an L2 holds
constexpr int kSeries = 11;

std::vector<float> normals(std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(kPattern));
  fill_normal(1, stream, 0, 1.0, values);
  return values;
}

// Random numbers of each kind, there to be copied.
class Patterns {
 public:
  const std::byte* of(const Array& array) {
    DeviceMemory& memory = patterns_[{array.dtype, array.kind}];
    if (!memory) memory = upload(array);
    return memory.get();
  }

 private:
  static DeviceMemory upload(const Array& array) {
    std::vector<float> values = normals(static_cast<std::uint64_t>(array.kind));
    if (array.kind == Kind::positive) {
      for (float& value : values) value = std::fabs(value);
    }
    if (array.dtype == DType::f32) return on_device(values);
    if (array.dtype == DType::bf16) return on_device(std::vector<bfloat16>(values.begin(), values.end()));
    return on_device(std::vector<float16>(values.begin(), values.end()));
  }
  std::map<std::pair<DType, Kind>, DeviceMemory> patterns_;
};

std::int64_t bytes_of(const Array& array) {
  return array.count * size_of(array.dtype);
}

// A case's arrays, so many times over that a launch finds none of its own in a cache.
class Sets {
 public:
  Sets(const Case& one, Patterns& patterns) : arrays_(one.arrays), patterns_(patterns) {
    std::int64_t size = 0;
    for (const Array& array : arrays_) size += padded(array);
    TRIREME_CHECK(size > 0, "a case has arrays");
    count_ = std::clamp<std::int64_t>(kAllSets / size, 2, 32);
    memory_.reset(kernels::allocate_on_device(count_ * size));
    std::byte* at = memory_.get();
    for (std::int64_t set = 0; set < count_; ++set) {
      for (const Array& array : arrays_) {
        places_.push_back(at);
        at += padded(array);
      }
    }
  }
  std::int64_t count() const { return count_; }
  std::byte* const* of(std::int64_t set) const { return places_.data() + set * std::ssize(arrays_); }
  void fill() const {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Array& array = arrays_[i % arrays_.size()];
      const std::int64_t most = kPattern * size_of(array.dtype);
      for (std::int64_t done = 0; done < bytes_of(array); done += most) {
        kernels::copy(places_[i] + done, patterns_.of(array), std::min(most, bytes_of(array) - done));
      }
    }
  }

 private:
  static std::int64_t padded(const Array& array) { return (bytes_of(array) + 255) / 256 * 256; }
  const std::vector<Array>& arrays_;
  Patterns& patterns_;
  std::int64_t count_ = 0;
  DeviceMemory memory_;
  std::vector<std::byte*> places_;
};

KernelRow measure(const Case& one, Patterns& patterns, const kernels::Stream& stream) {
  const Sets sets(one, patterns);
  std::vector<double> seconds;
  const kernels::Event begin(true), end(true);
  for (int series = -1; series < kSeries; ++series) {
    sets.fill();  // some kernels write over what they read; the copies also hide how long the host takes to launch
    begin.record(stream);
    for (std::int64_t set = 0; set < sets.count(); ++set) one.run(sets.of(set));
    end.record(stream);
    end.synchronize();
    if (series >= 0) seconds.push_back(seconds_between(begin, end) / static_cast<double>(sets.count()));
  }
  const Timing timing = timing_of(std::move(seconds));
  const double spread = (timing.high - timing.low) / timing.median;
  return {one.kernel, one.dtype, one.sizes, one.bytes, timing.median, spread, timing.median};
}

}  // namespace

DeviceKernels measure_device_kernels(const std::string& only) {
  kernels::need_device("trireme bench kernels", "is of devices", "run it on a machine with a device and its driver");
  kernels::use_device(0);
  DeviceKernels result{.device = kernels::device_facts(0)};
  const kernels::Stream stream;
  const kernels::OnStream on(stream);
  Patterns patterns;
  result.copy = measure(copy_case(std::int64_t{1} << 29), patterns, stream);
  std::map<std::int64_t, double> copies;
  for (const Case& one : device_cases()) {
    if (!one.kernel.starts_with(only)) continue;
    double& copy = copies[one.bytes];
    if (copy == 0) copy = measure(copy_case(one.bytes / 4), patterns, stream).seconds;
    result.rows.push_back(measure(one, patterns, stream));
    result.rows.back().copy_seconds = copy;
  }
  return result;
}

std::string to_table(const DeviceKernels& kernels) {
  const double copy = kernels.copy.bytes_per_s();
  std::string text = fmt::format(
      "{}: a copy of 1 GiB moves {:.2f} TB/s, bytes read and written (share); equal: of a copy that moves as much\n",
      kernels.device.name, copy * 1e-12);
  text += fmt::format("{:<23}{:<6}{:<24}{:>9}{:>10}{:>8}{:>8}{:>8}{:>8}\n", "kernel", "type", "sizes", "MB", "us",
                      "spread", "TB/s", "share", "equal");
  for (const KernelRow& row : kernels.rows) {
    text +=
        fmt::format("{:<23}{:<6}{:<24}{:>9.1f}{:>10.1f}{:>7.1f}%{:>8.2f}{:>7.1f}%{:>7.1f}%\n", row.kernel, row.dtype,
                    row.sizes, static_cast<double>(row.bytes) * 1e-6, row.seconds * 1e6, row.spread * 100,
                    row.bytes_per_s() * 1e-12, row.bytes_per_s() / copy * 100, row.copy_seconds / row.seconds * 100);
  }
  return text;
}

std::string to_json(const DeviceKernels& kernels) {
  const auto to_row = [&](const KernelRow& row) {
    return nlohmann::ordered_json{{"kernel", row.kernel},
                                  {"dtype", row.dtype},
                                  {"sizes", row.sizes},
                                  {"bytes", row.bytes},
                                  {"seconds_median", row.seconds},
                                  {"seconds_spread", row.spread},
                                  {"bytes_per_s", row.bytes_per_s()},
                                  {"share_of_copy", row.bytes_per_s() / kernels.copy.bytes_per_s()},
                                  {"share_of_copy_of_as_many_bytes", row.copy_seconds / row.seconds}};
  };
  nlohmann::ordered_json rows = nlohmann::ordered_json::array({to_row(kernels.copy)});
  for (const KernelRow& row : kernels.rows) rows.push_back(to_row(row));
  return nlohmann::ordered_json{{"device", kernels.device.name},
                                {"driver", kernels.device.driver},
                                {"runtime", kernels.device.runtime},
                                {"rows", std::move(rows)}}
             .dump(1) +
         "\n";
}

}  // namespace trireme::measure
