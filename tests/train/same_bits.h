// A run beside the serial one.
#pragma once
#include <gtest/gtest.h>

#include "train/tiny_run.h"

namespace trireme::testing {

inline void expect_same_bits(const TinyResult& result, const TinyResult& serial) {
  EXPECT_EQ(result.losses, serial.losses);
  EXPECT_EQ(result.gradient_norms, serial.gradient_norms);
  EXPECT_EQ(result.weights_digest, serial.weights_digest);
  EXPECT_TRUE(result.all_ranks_equal);
}

}  // namespace trireme::testing
