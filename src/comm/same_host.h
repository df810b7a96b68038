// Ranks of one host that talk through shared memory, and the others through the communicator that this one wraps.
//
// Every pair of ranks of a host has a ring each way (ring.h) in the block of the rank that reads it (shared_memory.h).
// Transfers move while their rank waits for one of them, whichever: all that is posted moves then. A send for which the
// ring has room is done at once. Who waits sleeps, and spends no time of a core.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/shared_memory.h"

namespace trireme::comm {

// Tells `mine` to these ranks and returns what each of them told, in their order; each of them calls it too.
using TellRanks = std::function<std::vector<std::string>(const std::string& mine, const std::vector<int>& ranks)>;

struct Transport {
  std::unique_ptr<Communicator> comm;
  std::string words;   // for the log: which ranks are reached how
  std::string notice;  // empty, or: ranks of this host with which memory cannot be shared
};

// Collective: every rank comes with its offer (empty: it does not want to, or cannot) and the words of all ranks'
// offers. Memory is used by two ranks that have both mapped each other's; the other pairs stay with `inner`, whose name
// is for `words`. A transfer fails with TR1101 once its peer's process is gone, or silent for `silence`.
Transport share_memory(std::unique_ptr<Communicator> inner, const std::string& inner_name,
                       const std::optional<MemoryOffer>& offer, const std::vector<std::string>& offers,
                       const TellRanks& tell, std::chrono::milliseconds silence);

// The bytes that fit into each ring where that many ranks share a host: two messages of a collective and their sizes,
// and less where the rings of a host would take more than 32 MiB.
std::size_t ring_capacity(int ranks_of_host);

}  // namespace trireme::comm
