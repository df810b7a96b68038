// A worker's end of the agent's socket: the job's keys and the word that the job is broken off, over one descriptor.
//
// A reader thread sorts what arrives, so that the store and the control channel can share it. All calls may come from
// any thread. When the agent's end closes, the link is broken with TR1111: the worker has nobody left to talk to.
#pragma once
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/control.h"
#include "comm/message.h"

namespace trireme::comm {

class AgentLink {
 public:
  explicit AgentLink(int fd);  // owns it from here on; its children do not inherit it
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;
  ~AgentLink();  // says bye

  // Keys. All three throw the Error of the break once there was one.
  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout);  // empty at the time-out
  std::optional<std::string> check(const std::string& key);                                   // empty: no such key yet

  // Hands a failure of this rank to the agent, within a second.
  void report(const RankFailure& failure) noexcept;

  // Blocks until the agent said BREAK, or its socket closed, or stop_waiting() was called (empty).
  std::optional<RankFailure> wait_for_break();
  void stop_waiting();

  std::optional<RankFailure> broken() const;

 private:
  struct Answer {
    bool arrived = false;
    std::optional<std::string> value;
  };

  void read_frames();
  bool accept(const Message& message);
  void break_off(const RankFailure& failure);
  void write(const Message& message);
  std::optional<std::string> ask(Message question, std::optional<std::chrono::milliseconds> timeout);

  const int fd_;
  std::mutex write_mutex_;  // frames must not mix
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Answer> questions_;  // those still waited for
  std::int64_t next_id_ = 0;
  std::optional<RankFailure> broken_;
  bool waiting_stopped_ = false;
  std::thread reader_;
};

// The control channel over the link.
std::unique_ptr<ControlChannel> make_agent_control(std::shared_ptr<AgentLink> link);

}  // namespace trireme::comm
