#include "comm/agent_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "comm/wire.h"

namespace trireme::comm {
namespace {

constexpr int kSendLimitSeconds = 1;

RankFailure agent_gone() {
  return {.rank = -1, .code = 1111, .place = "agent", .message = "the agent that started this worker is gone"};
}

class AgentControl final : public ControlChannel {
 public:
  explicit AgentControl(std::shared_ptr<AgentLink> link) : link_(std::move(link)) {}
  AgentControl(const AgentControl&) = delete;
  AgentControl& operator=(const AgentControl&) = delete;
  ~AgentControl() override {
    link_->stop_waiting();
    if (listener_.joinable()) listener_.join();
  }

  void report(const RankFailure& failure) noexcept override { link_->report(failure); }

  // On a thread of its own, not the link's reader: the reader must go on serving the store while on_break runs.
  void listen(std::function<void(const RankFailure&)> on_break) override {
    TRIREME_CHECK(!listener_.joinable(), "listen is called once");
    listener_ = std::thread([this, on_break = std::move(on_break)] {
      if (const auto failure = link_->wait_for_break()) on_break(*failure);
    });
  }

 private:
  std::shared_ptr<AgentLink> link_;
  std::thread listener_;
};

}  // namespace

AgentLink::AgentLink(int fd) : fd_(fd) {
  ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
  const timeval limit{.tv_sec = kSendLimitSeconds, .tv_usec = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  reader_ = std::thread([this] { read_frames(); });
}

AgentLink::~AgentLink() {
  {
    const std::lock_guard lock(write_mutex_);
    write_frame(fd_, encode({.op = Message::Op::bye}));
  }
  ::shutdown(fd_, SHUT_RD);  // wakes the reader
  reader_.join();
  ::close(fd_);
}

void AgentLink::read_frames() {
  while (const auto json = read_frame(fd_)) {
    try {
      if (!accept(decode(*json))) break;
    } catch (const Error& error) {
      break_off({.rank = -1, .code = error.code(), .place = error.place(), .message = error.message()});
      return;
    }
  }
  break_off(agent_gone());
}

// False for what an agent never sends.
bool AgentLink::accept(const Message& message) {
  const bool answers = message.op == Message::Op::value || message.op == Message::Op::missing;
  if (message.op == Message::Op::broken) {
    break_off(message.failure);
  } else if (answers) {
    const std::lock_guard lock(mutex_);
    const auto question = questions_.find(message.id);
    if (question == questions_.end()) return true;  // came after its time-out
    question->second.arrived = true;
    if (message.op == Message::Op::value) question->second.value = message.value;
    changed_.notify_all();
  }
  return answers || message.op == Message::Op::broken;
}

void AgentLink::break_off(const RankFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = failure;
  changed_.notify_all();
}

void AgentLink::write(const Message& message) {
  const std::string json = encode(message);
  const std::lock_guard lock(write_mutex_);
  if (!write_frame(fd_, json)) throw to_error(agent_gone());
}

std::optional<std::string> AgentLink::ask(Message question, std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  const std::int64_t id = question.id = next_id_++;
  questions_[id];
  lock.unlock();
  std::exception_ptr failed;
  try {
    write(question);
  } catch (...) {
    failed = std::current_exception();
  }
  lock.lock();
  const auto over = [&] { return failed || broken_ || questions_[id].arrived; };
  if (timeout) {
    changed_.wait_for(lock, *timeout, over);
  } else {
    changed_.wait(lock, over);
  }
  const Answer answer = std::move(questions_[id]);
  questions_.erase(id);
  if (answer.arrived) return answer.value;
  if (broken_) throw to_error(*broken_);
  if (failed) std::rethrow_exception(failed);
  return std::nullopt;
}

void AgentLink::set(const std::string& key, const std::string& value) {
  if (const auto failure = broken()) throw to_error(*failure);
  write({.op = Message::Op::set, .key = key, .value = value});
}

std::optional<std::string> AgentLink::get(const std::string& key, std::chrono::milliseconds timeout) {
  return ask({.op = Message::Op::get, .key = key}, timeout);
}

std::optional<std::string> AgentLink::check(const std::string& key) {
  return ask({.op = Message::Op::check, .key = key}, std::nullopt);
}

void AgentLink::report(const RankFailure& failure) noexcept {
  try {
    write({.op = Message::Op::failure, .failure = failure});
  } catch (const Error&) {
    // Nobody is left to tell.
  }
}

std::optional<RankFailure> AgentLink::wait_for_break() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return broken_ || waiting_stopped_; });
  return waiting_stopped_ ? std::nullopt : broken_;
}

void AgentLink::stop_waiting() {
  const std::lock_guard lock(mutex_);
  waiting_stopped_ = true;
  changed_.notify_all();
}

std::optional<RankFailure> AgentLink::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

std::unique_ptr<ControlChannel> make_agent_control(std::shared_ptr<AgentLink> link) {
  return std::make_unique<AgentControl>(std::move(link));
}

}  // namespace trireme::comm
