#include "cli/output.h"

#include <cstdio>

#include "base/error.h"

namespace trireme::cli {
namespace {

[[noreturn]] void fail() {
  throw Error(3021, "standard output", "the text could not be written", "is the disk full, or the reader gone?");
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail();
}

void flush_output() {
  if (std::fflush(stdout) != 0) fail();
}

}  // namespace trireme::cli
