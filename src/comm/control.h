// The control channel: what ranks tell each other beside collectives (an error, the order to break off). It works while
// every other thread is stuck in a collective.
//
// Two implementations: the agent's socket, which the worker inherits (TRIREME_CONTROL_FD), and store keys polled every
// 200 ms where there is no agent. A Local one serves ranks as threads. Stop requests need no channel: they travel in
// the step's REPORT.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace trireme::comm {

// Which rank failed, and its error.
struct RankFailure {
  int rank = -1;
  int code = 1000;
  std::string place, message, remedy;
};

// The failure as the error to end with on another rank: its place becomes "rank 2: data/x.jsonl:7".
Error to_error(const RankFailure& failure);

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  // Tells all other ranks; returns once the message is handed over (at most 1 s). Never throws.
  virtual void report(const RankFailure& failure) noexcept = 0;
  // Calls on_break at most once, on a thread of the channel's own, when another rank failed or the agent says so.
  // Must be set once, before the first collective.
  virtual void listen(std::function<void(const RankFailure&)> on_break) = 0;
};

std::unique_ptr<ControlChannel> make_no_control();
std::vector<std::unique_ptr<ControlChannel>> make_local_control(int world_size);

}  // namespace trireme::comm
