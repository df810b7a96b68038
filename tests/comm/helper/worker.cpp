// A worker process for the tests: joins, then behaves as its first argument says. Every behaviour that needs its peers
// starts with a barrier, so that a failure afterwards finds all ranks inside the job.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/job.h"
#include "comm/random_transfers.h"
#include "comm/reference.h"
#include "comm/wire.h"

namespace trireme::comm {
namespace {

using Arguments = std::vector<std::string>;
using std::chrono::milliseconds;

volatile std::sig_atomic_t stop_requested = 0;

Error data_error() {
  return Error(4002, "data/x.jsonl:7", "record 7 is bad", "mend it");
}

// A random mix of collectives, the same on all ranks, checked against serial sums.
int collectives(Membership& job, const Arguments& arguments) {
  Communicator& comm = *job.comm;
  const int me = comm.rank(), world_size = comm.world_size();
  std::mt19937_64 random(std::stoull(arguments.at(0)));
  for (int trial = 0; trial < 24; ++trial) {
    const ReduceCase c = random_case(random, world_size, trial % 8 == 7 ? 300'000 : 3'000);
    const std::int64_t numel = c.slice_numel * world_size;
    std::vector<std::vector<std::byte>> slots;
    for (int r = 0; r < c.participants; ++r) slots.push_back(random_slot(random, c.types.slot, numel));
    std::vector<std::byte> accumulator = random_slot(random, c.types.sum, numel);
    const std::vector<std::byte> expected = serial_sum(c, me, slots, accumulator);
    const void* slot = me < c.participants ? slots[me].data() : nullptr;
    ordered_reduce_scatter(comm, slot, c.types, accumulator.data() + me * c.slice_numel * size_of(c.types.sum),
                           c.slice_numel, c.participants, c.first);
    TRIREME_CHECK(accumulator == expected, "reduce-scatter of trial " + std::to_string(trial));

    const int root = static_cast<int>(random() % world_size);
    std::vector<int> word{me == root ? trial : -1};
    broadcast(comm, std::as_writable_bytes(std::span(word)), root);
    TRIREME_CHECK(word[0] == trial, "broadcast");
    const std::vector<int> all = gathered(comm, me);
    for (int r = 0; r < world_size; ++r) TRIREME_CHECK(all[r] == r, "all_gather");

    std::vector<float> whole(256 * world_size, 1.0f);
    ordered_all_reduce(comm, whole.data(), DType::f32, std::ssize(whole));
    TRIREME_CHECK(std::count(whole.begin(), whole.end(), static_cast<float>(world_size)) == std::ssize(whole),
                  "all_reduce");
  }
  barrier(comm);
  return 0;
}

// Random transfers, the same on all ranks; for ever without a COUNT of rounds.
int transfers(Membership& job, const Arguments& arguments) {
  std::mt19937_64 random(std::stoull(arguments.at(0)));
  const int count = arguments.size() > 1 ? std::stoi(arguments[1]) : std::numeric_limits<int>::max();
  std::printf("rank %d transfers\n", job.comm->rank());
  std::fflush(stdout);
  for (int round = 0; round < count; ++round) random_round(*job.comm, random);
  barrier(*job.comm);
  return 0;
}

// Steps until one rank was asked to stop; all learn of it in the same step.
int steps(Membership& job, const Arguments&) {
  std::printf("rank %d steps\n", job.comm->rank());
  std::fflush(stdout);
  for (;;) {
    for (const char one : gathered(*job.comm, static_cast<char>(stop_requested))) {
      if (one != 0) return 75;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
}

// Waits for something else than its peers, as who waits for a device does.
int beside(Membership& job, const Arguments&) {
  std::printf("rank %d waits\n", job.comm->rank());
  std::fflush(stdout);
  for (;;) {
    job.comm->throw_if_broken();
    std::this_thread::sleep_for(milliseconds(2));
  }
}

// RANK throws while the others wait for it.
int fail(Membership& job, const Arguments& arguments) {
  if (job.comm->rank() == std::stoi(arguments.at(0))) throw data_error();
  return steps(job, {});
}

// RANK ends with CODE, without a word; the others finish.
int finish(Membership& job, const Arguments& arguments) {
  if (job.comm->rank() == std::stoi(arguments.at(0))) return std::stoi(arguments.at(1));
  std::this_thread::sleep_for(milliseconds(300));
  return 0;
}

// RANK throws; the others do not look at their communicator and ignore every plea to end.
int stubborn(Membership& job, const Arguments& arguments) {
  std::printf("rank %d is stubborn\n", job.comm->rank());
  std::fflush(stdout);
  if (job.comm->rank() == std::stoi(arguments.at(0))) {
    std::this_thread::sleep_for(milliseconds(700));  // the others have long left the barrier, else it would free them
    throw data_error();
  }
  for (;;) std::this_thread::sleep_for(milliseconds(100));
}

// RANK sends TEXT to the agent as a frame, or as it stands ("raw:..."); the others step.
int garbage(Membership& job, const Arguments& arguments) {
  if (job.comm->rank() == std::stoi(arguments.at(0))) {
    const char* fd = std::getenv("TRIREME_CONTROL_FD");
    TRIREME_CHECK(fd != nullptr, "no agent has started this");
    const std::string& text = arguments.at(1);
    const std::string bytes = text.starts_with("raw:") ? text.substr(4) : frame(text);
    ::send(std::stoi(fd), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  return steps(job, {});
}

int done(Membership&, const Arguments&) {
  return 0;
}

// Every rank leaves a process behind in its group and finishes with CODE.
int litter(Membership&, const Arguments& arguments) {
  if (::fork() == 0) {
    for (;;) ::pause();
  }
  return std::stoi(arguments.at(0));
}

int run(Membership& job, const std::string& behaviour, const Arguments& arguments) {
  static const std::map<std::string, int (*)(Membership&, const Arguments&)> kBehaviours = {
      {"collectives", collectives}, {"transfers", transfers}, {"steps", steps},   {"fail", fail}, {"finish", finish},
      {"stubborn", stubborn},       {"garbage", garbage},     {"litter", litter}, {"done", done}, {"beside", beside},
  };
  const auto found = kBehaviours.find(behaviour);
  TRIREME_CHECK(found != kBehaviours.end(), "no such behaviour: " + behaviour);
  barrier(*job.comm);
  return found->second(job, arguments);
}

// fail_early RANK and exit_early RANK CODE: before joining.
void before_join(const WorkerEnvironment& environment, const std::string& behaviour, const Arguments& arguments) {
  if (arguments.empty() || environment.rank != std::stoi(arguments[0])) return;
  if (behaviour == "exit_early") std::exit(std::stoi(arguments.at(1)));
  if (behaviour != "fail_early") return;
  report_before_join(environment, data_error());
  throw data_error();
}

int work(const std::string& behaviour, const Arguments& arguments) {
  const char* limit = std::getenv("TEST_JOIN_SECONDS");
  const WorkerEnvironment environment = read_worker_environment();
  before_join(environment, behaviour, arguments);
  Membership job = join(environment, {.timeout_s = limit != nullptr ? std::stoi(limit) : 60,
                                      .same_host_memory = std::getenv("TEST_GLOO_ONLY") == nullptr});
  try {
    const bool early = behaviour.ends_with("_early");
    return run(job, early ? "steps" : behaviour, arguments);
  } catch (const std::exception& error) {
    throw job.fail(error);
  }
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) {
  const bool stubborn = argc > 1 && std::string(argv[1]) == "stubborn";
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    std::signal(
        signal, stubborn ? SIG_IGN : [](int) { trireme::comm::stop_requested = 1; });
  }
  try {
    return trireme::comm::work(argc > 1 ? argv[1] : "", {argv + std::min(argc, 2), argv + argc});
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "rank %s ends: %s\n", std::getenv("RANK"), error.what());
    return error.exit_code();
  }
}
