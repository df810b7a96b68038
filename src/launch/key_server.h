// The agent's keys: what the workers of one attempt publish to find each other. Bounded, since workers are not trusted.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/message.h"

namespace trireme::launch {

// An answer for a worker.
struct Reply {
  int rank = 0;
  comm::Message message;
};

class KeyServer {
 public:
  // set, get or check from a worker; the replies that became due by it. Throws Error TR1115 beyond the limits.
  std::vector<Reply> handle(int rank, const comm::Message& message);

 private:
  void add_bytes(std::size_t count);

  struct Waiting {
    int rank;
    std::int64_t id;
  };
  std::map<std::string, std::string> values_;
  std::multimap<std::string, Waiting> waiting_;  // gets whose key does not exist yet
  std::size_t bytes_ = 0;
};

}  // namespace trireme::launch
