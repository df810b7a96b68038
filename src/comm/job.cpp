#include "comm/job.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"
#include "comm/agent_link.h"
#include "comm/message.h"
#include "comm/store.h"
#include "comm/wire.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kCauseLimit{1000};
// Under our agent a hung peer is the agent's matter; without one, c10d's own limit.
constexpr milliseconds kSilenceUnderAgent = std::chrono::hours(24 * 365);
constexpr milliseconds kSilenceAlone = std::chrono::minutes(30);

std::string joined_key(int rank) {
  return "joined/" + std::to_string(rank);
}

RankFailure failure_of(int rank, const Error& error) {
  return {rank, error.code(), error.place(), error.message(), error.remedy()};
}

// Waits until every rank has said that it is there, or one that it failed.
void await_peers(JobStore& store, const WorkerEnvironment& environment, std::chrono::seconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  set_key(store, joined_key(environment.rank), "");
  milliseconds pause{1};
  for (int peer = 0; peer < environment.world_size;) {
    if (find_key(store, joined_key(peer))) {
      ++peer;
      continue;
    }
    if (const auto failure = find_failure(store)) throw to_error(*failure);
    if (steady_clock::now() > deadline) {
      std::string absent;
      for (int rank = peer; rank < environment.world_size; ++rank) {
        if (!find_key(store, joined_key(rank))) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
      }
      throw Error(1110, "rank " + std::to_string(environment.rank),
                  "of " + std::to_string(environment.world_size) + " ranks these did not come within " +
                      std::to_string(timeout.count()) + " s: " + absent,
                  "look into their logs; WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be the same on all ranks");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(50));
  }
}

// The address of this machine from which the master is reached: where the peers can reach it in turn.
std::string local_address_toward(const std::string& master) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;  // connecting it sends nothing, but chooses the route
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(master.c_str(), "9", &hints, &found); error != 0) {
    throw Error(3022, "environment",
                "MASTER_ADDR is \"" + master + "\", which cannot be resolved: " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    const int fd = ::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    auto* address = reinterpret_cast<sockaddr*>(&local);
    const bool routed =
        ::connect(fd, target->ai_addr, target->ai_addrlen) == 0 && ::getsockname(fd, address, &size) == 0;
    ::close(fd);
    char text[NI_MAXHOST];
    if (routed && ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) return text;
  }
  throw Error(3022, "environment", "MASTER_ADDR is \"" + master + "\", to which this machine has no route");
}

}  // namespace

struct Membership::Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<RankFailure> failure;

  void set(const RankFailure& heard) {
    const std::lock_guard lock(mutex);
    failure = heard;
    changed.notify_all();
  }
  std::optional<RankFailure> wait(milliseconds limit) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, limit, [&] { return failure.has_value(); });
    return failure;
  }
};

Membership::Membership(std::unique_ptr<Communicator> communicator, std::unique_ptr<ControlChannel> channel)
    : comm(std::move(communicator)), heard_(std::make_shared<Heard>()), control(std::move(channel)) {
  control->listen([heard = heard_, comm = comm.get()](const RankFailure& failure) {
    heard->set(failure);
    comm->abort(to_error(failure).what());
  });
}

std::optional<RankFailure> Membership::failure() const {
  return heard_->wait(milliseconds(0));
}

Error Membership::fail(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const Error own = known != nullptr ? *known : Error(1000, "rank " + std::to_string(comm->rank()), error.what());
  if (own.code() == 1101 || own.code() == 1102) {
    if (const auto cause = heard_->wait(kCauseLimit)) return to_error(*cause);
  }
  control->report(failure_of(comm->rank(), own));
  comm->abort("this rank failed: " + own.message());
  return own;
}

Membership join(const WorkerEnvironment& environment, int timeout_s) {
  failpoint("comm.join", environment.rank);
  const std::shared_ptr<AgentLink> link =
      environment.control_fd >= 0 ? std::make_shared<AgentLink>(environment.control_fd) : nullptr;
  if (environment.world_size == 1) return {make_single(), link ? make_agent_control(link) : make_no_control()};

  const std::chrono::seconds timeout(timeout_s);
  const JobStorePtr store = link ? make_agent_store(link, timeout) : make_tcp_store(environment, timeout);
  auto control = link ? make_agent_control(link) : make_store_control(store, environment.rank, environment.world_size);
  try {
    await_peers(*store, environment, timeout);
    auto comm = make_gloo(*store, {.rank = environment.rank,
                                   .world_size = environment.world_size,
                                   .local_address = local_address_toward(environment.master_addr),
                                   .connect = timeout,
                                   .silence = link ? kSilenceUnderAgent : kSilenceAlone});
    return {std::move(comm), std::move(control)};
  } catch (const Error& error) {
    control->report(failure_of(environment.rank, error));
    throw;
  }
}

void report_before_join(const WorkerEnvironment& environment, const Error& error) noexcept {
  if (environment.control_fd < 0) return;
  write_frame(environment.control_fd,
              encode({.op = Message::Op::failure, .failure = failure_of(environment.rank, error)}));
}

Error to_error(const RankFailure& failure) {
  const std::string rank = "rank " + std::to_string(failure.rank);
  std::string place = failure.place;
  if (failure.rank >= 0) place = place.empty() || place == rank ? rank : rank + ": " + place;
  return Error(failure.code, place, failure.message, failure.remedy);
}

}  // namespace trireme::comm
