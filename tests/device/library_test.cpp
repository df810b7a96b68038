// The CUDA library is built without a device, so what can be promised everywhere is that it is whole: it exports its
// table, and needs the CUDA runtime and cuBLAS, but neither a driver nor LibTorch.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "kernels/cuda/library.h"
#include "kernels/device.h"

namespace trireme::kernels {
namespace {

const std::filesystem::path kLibrary = TRIREME_CUDA_LIBRARY;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 4096> part{};
  while (const std::size_t size = fread(part.data(), 1, part.size(), pipe.get())) output.append(part.data(), size);
  return output;
}

class BuiltLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kLibrary)) GTEST_SKIP() << "built without a CUDA 13 toolkit";
  }
};

TEST_F(BuiltLibrary, ExportsItsTableAndNothingElse) {
  const std::string symbols = output_of("nm -D --defined-only '" + kLibrary.string() + "' | grep trireme");
  EXPECT_NE(symbols.find(" trireme_cuda_library\n"), std::string::npos) << symbols;
}

TEST_F(BuiltLibrary, NeedsTheRuntimeButNeitherADriverNorLibTorch) {
  const std::string dynamic = output_of("readelf -d '" + kLibrary.string() + "'");
  for (const char* library : {"[libcudart.so.13]", "[libcublasLt.so.13]"}) {
    EXPECT_NE(dynamic.find(library), std::string::npos) << library << " is not among:\n" << dynamic;
  }
  for (const char* library : {"[libcuda.so", "[libtorch", "[libc10"}) {
    EXPECT_EQ(dynamic.find(library), std::string::npos) << library << " is among:\n" << dynamic;
  }
}

TEST_F(BuiltLibrary, SaysWhyThereAreNoDevices) {
  if (num_devices() > 0) GTEST_SKIP() << "there are devices";
  EXPECT_FALSE(why_no_device().empty());
}

}  // namespace
}  // namespace trireme::kernels
