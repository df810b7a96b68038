// Which drivers of devices are refused. There need be none here.
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/device.h"

namespace trireme::kernels {
namespace {

TEST(Driver, OlderThanCuda13IsRefusedWithBothVersions) {
  for (const auto& [version, name] : {std::pair(12090, "12.9"), {12080, "12.8"}, {11000, "11.0"}, {12999, "12.99"}}) {
    try {
      check_driver(version, "training.device");
      ADD_FAILURE() << version << " is taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), 3065);
      EXPECT_EQ(error.place(), "training.device");
      EXPECT_NE(error.message().find(std::string("CUDA ") + name + " at most; 13.0"), std::string::npos)
          << error.what();
      EXPECT_NE(error.remedy().find("580.65.06"), std::string::npos) << error.what();
    }
  }
}

TEST(Driver, OfCuda13OrLaterIsTakenAndNoneIsNotTooOld) {
  for (const int version : {13000, 13010, 14000, 0}) EXPECT_NO_THROW(check_driver(version, "")) << version;
}

}  // namespace
}  // namespace trireme::kernels
