// The one way in which anything fails: an error with a code, a place, the offending value and a way out.
//
// Codes are TRcxxx; the first digit is the process's exit code (1 other, 2 usage or configuration, 3 environment,
// 4 data, 5 checkpoint), but for TR1303: 93. Ranges: 1000 engine and model, 1100 communication and launch, 2000 command
// line, 2100 configuration files, 2200 plan resolution, 3000 environment, 4000 data, 4100 tokenizer, 5000 checkpoint.
// Thrown anywhere, caught and printed once, in main (and handed on to the other ranks by the control channel).
#pragma once
#include <exception>
#include <string>

namespace trireme {

class Error : public std::exception {
 public:
  static constexpr int kNoProgress = 1303;  // the run would not get anywhere if it were started again

  // place: "configs/run.yaml:14:5", "rank 2", a path. message: what is wrong, with the value. remedy: one line, may be
  // empty.
  Error(int code, std::string place, std::string message, std::string remedy = {});

  const char* what() const noexcept override { return text_.c_str(); }  // "TR2104: place: message\n  remedy"
  int code() const noexcept { return code_; }
  const std::string& place() const noexcept { return place_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& remedy() const noexcept { return remedy_; }
  int exit_code() const noexcept { return code_ == kNoProgress ? 93 : code_ / 1000; }

 private:
  int code_;
  std::string place_, message_, remedy_, text_;
};

// Throws an internal error (TR1000) that names the place in the source; for promises between our own parts.
[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& message);

}  // namespace trireme

// Checks a promise between our own parts, in every build; costs one branch.
#define TRIREME_CHECK(condition, message)                                             \
  do {                                                                                \
    if (!(condition)) ::trireme::fail_check(#condition, __FILE__, __LINE__, message); \
  } while (false)
