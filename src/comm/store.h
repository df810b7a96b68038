// The keys by which ranks find each other and, without an agent, tell each other of failures. Hides c10d's Store.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/agent_link.h"
#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/job.h"

namespace trireme::comm {

// A c10d store, defined in torch/c10d_store.h for the files that see c10d. A call of one thread holds up the others'
// calls, so each thread has its own (clone_store).
struct JobStore;
using JobStorePtr = std::shared_ptr<JobStore>;

// Keys served by the agent, empty at its start. Waiting for a key ends at timeout.
JobStorePtr make_agent_store(std::shared_ptr<AgentLink> link, std::chrono::milliseconds timeout);

// A TCPStore at MASTER_ADDR:MASTER_PORT. Rank 0 serves it, unless torchrun does (TORCHELASTIC_USE_AGENT_STORE=True);
// keys are apart for each TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT. Throws TR1110 when it cannot be reached
// within timeout, TR1114 when rank 0 cannot serve it.
JobStorePtr make_tcp_store(const WorkerEnvironment& environment, std::chrono::milliseconds timeout);

JobStorePtr clone_store(const JobStore& store);  // another connection to the same keys
bool serves(const JobStore& store);              // the keys end with this process

void set_key(JobStore& store, const std::string& key, const std::string& value);
std::optional<std::string> find_key(JobStore& store, const std::string& key);  // never waits for the key
// Sets the key if there is none; in one step. Only for a TCPStore.
void claim_key(JobStore& store, const std::string& key, const std::string& value);

// A control channel over keys, polled every 200 ms: the first failure written wins. The rank that serves the store
// stays, in the destructor, for up to a second after a failure, until the others have read it.
std::unique_ptr<ControlChannel> make_store_control(JobStorePtr store, int rank, int world_size);
std::optional<RankFailure> find_failure(JobStore& store);  // what such a channel's report wrote

// Gloo. Has the process ignore SIGPIPE, with which Gloo would end it when a peer is gone. local_address: of this
// machine, that the peers can reach. All ranks must come within `connect`; a transfer fails with TR1101 when its peer
// is silent for `silence`.
struct GlooOptions {
  int rank = 0, world_size = 1;
  std::string local_address;
  std::chrono::milliseconds connect, silence;
};
std::unique_ptr<Communicator> make_gloo(const JobStore& store, const GlooOptions& options);

}  // namespace trireme::comm
