// How close the kernels of a device come to its memory: each at sizes of training, beside a plain copy.
//
// `trireme bench kernels` prints what this measures. A kernel's bytes are the fewest that it must move, each input read
// and each output written once; its time is that of one launch among many, one behind another, each on numbers that
// the device's caches do not hold.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace trireme::measure {

struct KernelRow {
  std::string kernel, dtype, sizes;  // "rmsnorm_backward", "bf16", "16384 x 2048"
  std::int64_t bytes = 0;
  double seconds = 0;       // of one launch: the median of several series
  double spread = 0;        // of the middle four fifths of the series, by the median
  double copy_seconds = 0;  // of a plain copy that moves as many bytes; a short kernel has no more time than that
  double bytes_per_s() const { return static_cast<double>(bytes) / seconds; }
};

struct DeviceKernels {
  kernels::DeviceFacts device;
  KernelRow copy;  // of 1 GiB
  std::vector<KernelRow> rows;
};

// Of the kernels whose name begins with `only`. The calling thread's device becomes the first. Error TR3064 or TR3065
// where there is none.
DeviceKernels measure_device_kernels(const std::string& only);

std::string to_table(const DeviceKernels& kernels);
std::string to_json(const DeviceKernels& kernels);

}  // namespace trireme::measure
