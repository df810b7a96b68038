// Arrays that begin anywhere, and what tests of kernels do with every type and every such place.
#pragma once
#include "device/support.h"

namespace trireme::kernels {

// An array of the device that begins `shift` elements behind a multiple of 16 bytes. NaN without values.
template <class T>
class Shifted {
 public:
  Shifted(const std::vector<T>& values, std::int64_t shift) : shift_(shift), array_(moved(values, shift)) {}
  Shifted(std::int64_t size, std::int64_t shift) : shift_(shift), array_(size + shift) {}
  T* data() const { return array_.data() + shift_; }
  operator T*() const { return data(); }
  std::vector<T> host() const {
    const std::vector<T> all = array_.host();
    return {all.begin() + shift_, all.end()};
  }

 private:
  static std::vector<T> moved(std::vector<T> values, std::int64_t shift) {
    values.insert(values.begin(), static_cast<std::size_t>(shift), T(0.0f));
    return values;
  }
  std::int64_t shift_;
  DeviceArray<T> array_;
};

template <class T>
std::vector<double> widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// run(shift) gives what a kernel wrote for arrays that begin there: the same bits for each shift and each time. Returns
// them.
template <class Run>
auto same_anywhere(Run run) {
  const auto first = run(0);
  for (const std::int64_t shift : all_or_brief({0, 1, 8, 3}, {1})) {
    const auto again = run(shift);
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(same_bits(first[i], again[i])) << "array " << i << " that begins at " << shift;
    }
  }
  return first;
}

// check.operator()<T>() for the types of devices.
template <class Check>
void for_each_type(Check check) {
  {
    SCOPED_TRACE("float");
    check.template operator()<float>();
  }
  {
    SCOPED_TRACE("bfloat16");
    check.template operator()<bfloat16>();
  }
  {
    SCOPED_TRACE("float16");
    check.template operator()<float16>();
  }
}

}  // namespace trireme::kernels
