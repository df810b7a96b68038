// Only for store.cpp and gloo.cpp: what JobStore is. c10d's headers cost ten seconds a file.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/store_table.h"

namespace trireme::comm {

struct JobStore {
  c10::intrusive_ptr<c10d::Store> keys;
  bool serves = false;
};

std::unique_ptr<Communicator> make_gloo_on_c10d(const JobStore& store, const GlooOptions& options);  // gloo.cpp

// What torch or Gloo says, without backtrace and source line: "[/a/b/pair.cc:538] Connection closed by peer" becomes
// "Connection closed by peer".
std::string words_of(const std::exception& error);

// Calls body; what torch throws becomes Error `code` with torch's first words, at `place`.
template <class Body>
auto with_torch_errors(int code, const std::string& place, const std::string& what, Body body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(code, place, what + ": " + words_of(error));
  }
}

}  // namespace trireme::comm
