// Only for store.cpp and gloo.cpp: what JobStore is. c10d's headers cost ten seconds a file.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/store.h"

namespace trireme::comm {

struct JobStore {
  c10::intrusive_ptr<c10d::Store> keys;
  bool serves = false;
};

// Calls body; what torch throws becomes Error `code` with torch's first words, at `place`.
template <class Body>
auto with_torch_errors(int code, const std::string& place, const std::string& what, Body body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw Error(code, place, what + ": " + text.substr(0, text.find('\n')));
  }
}

}  // namespace trireme::comm
