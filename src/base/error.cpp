#include "base/error.h"

#include <cstdio>
#include <utility>

namespace trireme {

Error::Error(int code, std::string place, std::string message, std::string remedy)
    : code_(code), place_(std::move(place)), message_(std::move(message)), remedy_(std::move(remedy)) {
  text_ = "TR" + std::to_string(code_) + ": ";
  if (!place_.empty()) text_ += place_ + ": ";
  text_ += message_;
  if (!remedy_.empty()) text_ += "\n  " + remedy_;
}

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw Error(1000, std::string(file) + ":" + std::to_string(line), message + " (" + condition + ")",
              "this is a defect of Trireme; please report it with the command that led here");
}

}  // namespace trireme
