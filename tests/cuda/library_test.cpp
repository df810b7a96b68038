// The CUDA library is linked without a GPU, so what can be promised everywhere is that it is whole: it exports its
// version, and names LibTorch's CUDA part. Where the libraries that this part needs are present, it is loaded as well.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace {

const std::filesystem::path kLibrary = TRIREME_CUDA_LIBRARY;

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 4096> part{};
  while (const std::size_t size = fread(part.data(), 1, part.size(), pipe.get())) output.append(part.data(), size);
  return output;
}

class CudaLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kLibrary)) GTEST_SKIP() << "built without a CUDA 13 toolkit";
  }
};

TEST_F(CudaLibrary, ExportsItsVersion) {
  const std::string symbols = output_of("nm -D --defined-only '" + kLibrary.string() + "'");
  EXPECT_NE(symbols.find(" T trireme_cuda_version"), std::string::npos) << symbols;
}

TEST_F(CudaLibrary, IsLinkedAgainstTheCudaPartOfLibTorch) {
  const std::string dynamic = output_of("readelf -d '" + kLibrary.string() + "'");
  for (const char* library : {"[libtorch_cuda.so]", "[libc10_cuda.so]", "[libcudart.so.13]"}) {
    EXPECT_NE(dynamic.find(library), std::string::npos) << library << " is not among:\n" << dynamic;
  }
}

TEST_F(CudaLibrary, TellsTheVersionOfTheBuildWhenLoaded) {
  void* library = dlopen(kLibrary.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!library) GTEST_SKIP() << "libraries of LibTorch's CUDA part are missing here: " << dlerror();
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(library, "trireme_cuda_version"));
  ASSERT_NE(version, nullptr) << dlerror();
  EXPECT_EQ(std::string(version()).rfind(std::string(TRIREME_VERSION) + " CUDA 13.", 0), 0U) << version();
}

}  // namespace
