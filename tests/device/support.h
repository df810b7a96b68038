// Arrays of a device, and comparison with a reference, for the tests that need one.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "kernels/support.h"

namespace trireme::kernels {

// Skips where there is no device. Kernels of the test run on a stream of the first; host() waits for them.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_devices() == 0) GTEST_SKIP() << "no CUDA device here: " << why_no_device();
    use_device(0);
    stream_.emplace();
    on_.emplace(*stream_);
  }
  void TearDown() override {
    if (stream_) stream_->synchronize();  // a kernel's failure is this test's
    on_.reset();
  }
  std::optional<Stream> stream_;
  std::optional<OnStream> on_;
};

// Under a sanitizer a kernel takes hundreds of times as long: each way through it once is enough then.
inline bool brief() {
  return std::getenv("TRIREME_TEST_BRIEF") != nullptr;
}
inline std::vector<std::int64_t> all_or_brief(std::vector<std::int64_t> all, std::vector<std::int64_t> briefly) {
  return brief() ? briefly : all;
}

// A copy on the device of what a test has on the host. The bytes behind it are checked: none of a kernel's business.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values)
      : size_(values.size()), memory_(allocate_on_device(bytes() + kGuard)) {
    copy(memory_, values.data(), bytes());
    const std::vector<std::uint8_t> guard(kGuard, 0xa5);
    copy(memory_ + bytes(), guard.data(), kGuard);
  }
  explicit DeviceArray(std::int64_t size) : DeviceArray(std::vector<T>(static_cast<std::size_t>(size), poison())) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { free_on_device(memory_); }

  T* data() const { return reinterpret_cast<T*>(memory_); }
  operator T*() const { return data(); }
  // Waits: a copy to memory that is not pinned is done when it returns.
  std::vector<T> host() const {
    std::vector<T> values(size_);
    std::vector<std::uint8_t> guard(kGuard);
    copy(values.data(), memory_, bytes());
    copy(guard.data(), memory_ + bytes(), kGuard);
    EXPECT_EQ(guard, std::vector<std::uint8_t>(kGuard, 0xa5)) << "a kernel wrote behind its array";
    return values;
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  // What no kernel should leave: NaN.
  static T poison() {
    T value;
    std::memset(static_cast<void*>(&value), 0xff, sizeof(T));
    return value;
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(size_ * sizeof(T)); }
  std::size_t size_;
  std::byte* memory_;
};

// |a - b| / |b|, of all elements; NaN where either has one.
template <class T, class U>
double relative_error(const std::vector<T>& a, const std::vector<U>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

// What rounding to T costs, with room for another order of summation.
template <class T>
constexpr double kTolerance = 2e-6;
template <>
inline constexpr double kTolerance<bfloat16> = 4e-3;
template <>
inline constexpr double kTolerance<float16> = 5e-4;

}  // namespace trireme::kernels
