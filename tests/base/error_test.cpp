#include "base/error.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Error, SaysCodePlaceValueAndRemedyInTwoLines) {
  const Error error(2104, "run.yaml:14:5", "micro_batch_size is 3", "use 1, 2 or 4");
  EXPECT_STREQ(error.what(), "TR2104: run.yaml:14:5: micro_batch_size is 3\n  use 1, 2 or 4");
  EXPECT_EQ(error.exit_code(), 2);
  EXPECT_EQ(Error(Error::kNoProgress, "step 7", "no progress").exit_code(), 93);
  EXPECT_STREQ(Error(5040, "", "no tensor").what(), "TR5040: no tensor");
}

TEST(Error, ABrokenPromiseBetweenPartsNamesItsLine) {
  try {
    TRIREME_CHECK(1 > 2, "one is more than two");
    FAIL() << "the check let it pass";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), 1000);
    EXPECT_NE(error.place().find("error_test.cpp:"), std::string::npos);
    EXPECT_NE(error.message().find("one is more than two (1 > 2)"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme
