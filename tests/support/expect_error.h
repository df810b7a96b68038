// For promises about failures: the code, and what the person reads.
#pragma once
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/error.h"

namespace trireme::testing {

// Runs action, which must throw Error of that code; returns its text, or "" (and a failed test) when it did not.
template <class Action>
std::string expect_error(int code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error, TR" << code << " expected";
  return "";
}

}  // namespace trireme::testing
