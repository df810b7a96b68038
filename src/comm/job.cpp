#include "comm/job.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/torch_library.h"
#include "comm/agent_link.h"
#include "comm/message.h"
#include "comm/network.h"
#include "comm/same_host.h"
#include "comm/store.h"
#include "comm/wire.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kCauseLimit{1000};
constexpr milliseconds kMeetMargin{4000};  // the parts of joining have their own, more telling, limits
// Under our agent a hung peer is the agent's matter; without one, c10d's own limit.
constexpr milliseconds kSilenceUnderAgent = std::chrono::hours(24 * 365);
constexpr milliseconds kSilenceAlone = std::chrono::minutes(30);

RankFailure failure_of(int rank, const Error& error) {
  return {rank, error.code(), error.place(), error.message(), error.remedy()};
}

// Tells the peers something under a key of that name and waits until each of them has told its own, or one that it
// failed. What they told, in order.
std::vector<std::string> exchange(JobStore& store, const WorkerEnvironment& environment, const std::string& name,
                                  const std::string& mine, const std::vector<int>& peers,
                                  std::chrono::seconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const auto key = [&](int rank) { return name + "/" + std::to_string(rank); };
  set_key(store, key(environment.rank), mine);
  milliseconds pause{1};
  std::vector<std::string> told;
  while (told.size() < peers.size()) {
    if (auto value = find_key(store, key(peers[told.size()]))) {
      told.push_back(*std::move(value));
      continue;
    }
    if (const auto failure = find_failure(store)) throw to_error(*failure);
    if (steady_clock::now() > deadline) {
      std::string absent;
      for (const int rank : std::span(peers).subspan(told.size())) {
        if (!find_key(store, key(rank))) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
      }
      throw Error(1110, "rank " + std::to_string(environment.rank),
                  "of " + std::to_string(environment.world_size) + " ranks these did not come within " +
                      std::to_string(timeout.count()) + " s: " + absent,
                  "look into their logs; WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be the same on all ranks");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(50));
  }
  return told;
}

struct Peers {
  Transport transport;
  std::unique_ptr<ControlChannel> control;
};

struct Offered {
  std::optional<MemoryOffer> offer;
  std::string notice;
};

Offered offer_memory(int rank) {
  try {
    return {MemoryOffer(rank), ""};
  } catch (const Error& error) {
    if (error.code() != kNoSharedMemory) throw;
    return {std::nullopt, "memory cannot be shared, Gloo serves instead: " + error.message()};
  }
}

Peers meet(const WorkerEnvironment& environment, const std::shared_ptr<AgentLink>& link, const JoinOptions& options) {
  const std::chrono::seconds timeout(options.timeout_s);
  const milliseconds silence = link ? kSilenceUnderAgent : kSilenceAlone;
  const int rank = environment.rank, world_size = environment.world_size;
  const JobStorePtr store = link ? make_agent_store(link, timeout) : make_tcp_store(environment, timeout);
  auto control = link ? make_agent_control(link) : make_store_control(store, rank, world_size);
  try {
    const Offered memory = options.same_host_memory ? offer_memory(rank) : Offered();
    std::vector<int> all(static_cast<std::size_t>(world_size));
    std::iota(all.begin(), all.end(), 0);
    const std::vector<std::string> offers =
        exchange(*store, environment, "joined", memory.offer ? to_text(memory.offer->word()) : "", all, timeout);
    auto gloo = make_gloo(*store, {.rank = rank,
                                   .world_size = world_size,
                                   .local_address = local_address_toward(environment.master_addr),
                                   .connect = timeout,
                                   .silence = silence});
    const TellRanks tell = [&](const std::string& mine, const std::vector<int>& ranks) {
      return exchange(*store, environment, "shares_memory", mine, ranks, timeout);
    };
    Transport transport = share_memory(std::move(gloo), "Gloo", memory.offer, offers, tell, silence);
    if (!memory.notice.empty()) transport.notice = memory.notice;
    return {std::move(transport), std::move(control)};
  } catch (const Error& error) {
    control->report(failure_of(rank, error));
    throw;
  }
}

// Runs body on a thread that is left behind at the limit: calls on a store whose host stands still, or that is no store
// at all, end at no time-out of their own.
Peers within(milliseconds limit, std::function<Peers()> body) {
  std::packaged_task<Peers()> task(std::move(body));
  std::future<Peers> result = task.get_future();
  std::thread thread(std::move(task));
  if (result.wait_for(limit) == std::future_status::ready) {
    thread.join();
    return result.get();
  }
  thread.detach();
  throw Error(1110, "MASTER_ADDR, MASTER_PORT", "what listens there does not answer as a store",
              "is rank 0 stopped, or the port another program's?");
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
    const Error cause = to_error(failure);
    comm->abort(cause.place() + ": " + cause.message());
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

Membership join(const WorkerEnvironment& environment, const JoinOptions& options) {
  failpoint("comm.join", environment.rank);
  const std::shared_ptr<AgentLink> link =
      environment.control_fd >= 0 ? std::make_shared<AgentLink>(environment.control_fd) : nullptr;
  if (environment.world_size == 1) return {make_single(), link ? make_agent_control(link) : make_no_control()};
  torch_symbol("trireme_store_table");  // its start is no part of the wait: on a busy machine it takes seconds
  Peers peers =
      within(std::chrono::seconds(options.timeout_s) + kMeetMargin, [=] { return meet(environment, link, options); });
  log::info(peers.transport.words);
  if (!peers.transport.notice.empty()) log::info(peers.transport.notice);
  return {std::move(peers.transport.comm), std::move(peers.control)};
}

void report_before_join(const WorkerEnvironment& environment, const Error& error) noexcept {
  if (environment.control_fd < 0) return;
  write_frame(environment.control_fd,
              encode({.op = Message::Op::failure, .failure = failure_of(environment.rank, error)}));
}

}  // namespace trireme::comm
