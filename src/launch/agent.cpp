#include "launch/agent.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "comm/control.h"
#include "launch/key_server.h"
#include "launch/signal_queue.h"
#include "launch/worker.h"

namespace trireme::launch {
namespace {

using comm::RankFailure;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kStoppedOnPurpose = 75;
// Together below the two seconds within which a failed job ends.
constexpr milliseconds kCauseWait{300};   // a lost connection is reported; is its cause, the peer's end, still to come?
constexpr milliseconds kBreakGrace{700};  // from BREAK to SIGTERM
constexpr milliseconds kTermGrace{700};   // from there to SIGKILL

// TR1101 and TR1102 are what other ranks see of a failure.
bool is_consequence(const RankFailure& failure) {
  return failure.code == 1101 || failure.code == 1102;
}

class Agent {
 public:
  explicit Agent(const LaunchOptions& options) : options_(options) {
    for (int rank = 0; rank < options.nproc_per_node; ++rank) {
      members_.push_back(std::make_unique<Member>(options, rank, signals_.mask_before()));
    }
  }

  int run() {
    while (any_running()) {
      wait();
      for (const int number : signals_.take()) {
        if (number != SIGCHLD) on_signal(number);
      }
      for (const auto& member : members_) serve(*member);
      for (const auto& member : members_) {
        if (const auto status = member->worker.reap()) on_exit(*member, *status);
      }
      on_time(Clock::now());
    }
    if (suspicion_) break_off(suspicion_->failure);
    return exit_code();
  }

 private:
  struct Member {
    Member(const LaunchOptions& options, int rank, const sigset_t& mask) : worker(options, rank, mask) {}
    Worker worker;
    bool reported = false;
    int exit_code = 0;  // of a process that ended by itself; 128 + n for a signal
  };
  struct Suspicion {
    RankFailure failure;
    Clock::time_point until;
  };

  bool any_running() const {
    return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member->worker.running(); });
  }

  // Until something arrives or a deadline passes.
  void wait() {
    std::vector<pollfd> watched{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const auto& member : members_) {
      const Worker& worker = member->worker;
      const int events = POLLIN | (worker.wants_to_write() ? POLLOUT : 0);
      if (worker.fd() >= 0) watched.push_back({.fd = worker.fd(), .events = static_cast<short>(events), .revents = 0});
    }
    ::poll(watched.data(), watched.size(), milliseconds_to_deadline());
  }

  int milliseconds_to_deadline() const {
    std::optional<Clock::time_point> next;
    for (const auto& deadline : {suspicion_ ? std::optional(suspicion_->until) : std::nullopt, term_at_, kill_at_}) {
      if (deadline && (!next || *deadline < *next)) next = deadline;
    }
    if (!next) return -1;
    const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }

  void signal_all(int number) {
    for (const auto& member : members_) member->worker.signal_group(number);
  }

  // Each signal is handed on once; a second plea to end is an order.
  void on_signal(int number) {
    const bool ends = number == SIGTERM || number == SIGINT;
    if (ends && stop_signal_ != 0) {
      kill_all(signal_name(number) + " came again");
      return;
    }
    if (!handed_on_.insert(number).second) return;
    signal_all(number);
    log::info(signal_name(number) + " is handed to all workers");
    if (!ends) return;
    stop_signal_ = number;
    const auto grace =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.grace_seconds));
    if (!kill_at_) kill_at_ = Clock::now() + grace;
  }

  void serve(Member& member) {
    try {
      for (const comm::Message& message : member.worker.receive()) handle(member, message);
    } catch (const Error& error) {
      const int rank = member.worker.rank();
      blame({.rank = rank, .code = error.code(), .place = error.place(), .message = error.message()});
    }
    member.worker.flush();
  }

  void handle(Member& member, const comm::Message& message) {
    using Op = comm::Message::Op;
    const int rank = member.worker.rank();
    switch (message.op) {
      case Op::set:
      case Op::get:
      case Op::check:
        for (const Reply& reply : keys_.handle(rank, message)) members_[reply.rank]->worker.send(reply.message);
        return;
      case Op::failure: {
        member.reported = true;
        RankFailure failure = message.failure;
        failure.rank = rank;
        blame(failure);
        return;
      }
      case Op::bye: return;
      case Op::value:
      case Op::missing:
      case Op::broken: throw Error(1115, "control channel", "a frame that only an agent sends");
    }
  }

  void on_exit(Member& member, int status) {
    serve(member);  // its last words
    const bool signalled = WIFSIGNALED(status);
    const int number = signalled ? WTERMSIG(status) : 0;
    const bool ended_by_us = signalled && (killed_ || (failure_ && number == SIGTERM));
    if (!ended_by_us) member.exit_code = signalled ? 128 + number : WEXITSTATUS(status);
    if (ended_by_us || member.reported || member.exit_code == 0 || member.exit_code == kStoppedOnPurpose) return;
    RankFailure failure{.rank = member.worker.rank(), .code = 1112};
    if (!signalled) {
      failure.message = "exited with code " + std::to_string(member.exit_code) + " without a word";
      failure.remedy = member.exit_code == 127 ? "its program could not be run" : "its own output tells more";
    } else {
      failure.message = "killed by signal " + std::to_string(number) + " (" + signal_name(number) + ")";
      if (number == SIGKILL) failure.remedy = "if nobody sent it, memory ran out: see dmesg";
      if (handed_on_.count(number) != 0) failure.remedy = "it was asked to stop before it could save";
    }
    blame(failure);
  }

  // The first failure ends the job; one that is only a consequence waits a moment for its cause.
  void blame(const RankFailure& failure) {
    if (failure_) return;
    if (!is_consequence(failure)) {
      break_off(failure);
    } else if (!suspicion_) {
      suspicion_ = Suspicion{failure, Clock::now() + kCauseWait};
    }
  }

  void break_off(const RankFailure& failure) {
    suspicion_.reset();
    failure_ = failure;
    const Error error(failure.code, failure.place, failure.message, failure.remedy);
    log::error("rank " + std::to_string(failure.rank) + " failed: " + error.what());
    for (const auto& member : members_) {
      if (member->worker.rank() == failure.rank) continue;
      member->worker.send({.op = comm::Message::Op::broken, .failure = failure});
    }
    term_at_ = Clock::now() + kBreakGrace;
    const auto kill_at = *term_at_ + kTermGrace;
    kill_at_ = kill_at_ ? std::min(*kill_at_, kill_at) : kill_at;
  }

  void on_time(Clock::time_point now) {
    if (suspicion_ && now >= suspicion_->until) break_off(suspicion_->failure);
    if (term_at_ && now >= *term_at_) {
      term_at_.reset();
      signal_all(SIGTERM);
    }
    if (kill_at_ && now >= *kill_at_) {
      kill_at_.reset();
      kill_all(failure_ ? "they did not end after the failure" : "they did not end in time");
    }
  }

  void kill_all(const std::string& why) {
    if (!any_running()) return;
    std::string ranks;
    for (const auto& member : members_) {
      if (member->worker.running()) ranks += " " + std::to_string(member->worker.rank());
    }
    log::warn("killing the workers of ranks" + ranks + ": " + why);
    killed_ = true;
    signal_all(SIGKILL);
  }

  int exit_code() const {
    if (failure_) {
      const int own = members_[failure_->rank]->exit_code;
      const bool tells = own != 0 && own != kStoppedOnPurpose;
      return tells ? own : std::max(1, failure_->code / 1000);
    }
    if (killed_) return 128 + stop_signal_;
    const bool stopped = std::any_of(members_.begin(), members_.end(),
                                     [](const auto& member) { return member->exit_code == kStoppedOnPurpose; });
    return stopped ? kStoppedOnPurpose : 0;
  }

  const LaunchOptions& options_;
  SignalQueue signals_;  // above the workers: their ends are noticed from the first on
  std::vector<std::unique_ptr<Member>> members_;
  KeyServer keys_;
  std::optional<RankFailure> failure_;
  std::optional<Suspicion> suspicion_;
  std::optional<Clock::time_point> term_at_, kill_at_;
  std::set<int> handed_on_;
  int stop_signal_ = 0;  // the first SIGTERM or SIGINT
  bool killed_ = false;
};

}  // namespace

int run_agent(const LaunchOptions& options) {
  TRIREME_CHECK(options.nproc_per_node >= 1, "a job has at least one worker");
  return Agent(options).run();
}

}  // namespace trireme::launch
