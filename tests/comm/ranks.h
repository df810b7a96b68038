// Plays ranks as threads: one thread a rank, each with its communicator.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <ostream>
#include <thread>

#include "base/failpoint.h"
#include "comm/communicator.h"
#include "comm/same_host.h"

namespace trireme::comm {

using Communicators = std::vector<std::unique_ptr<Communicator>>;
using MakeRanks = Communicators (*)(int world_size);

// The store's part in share_memory, among threads.
class Board {
 public:
  std::vector<std::string> tell(int rank, const std::string& mine, const std::vector<int>& ranks) {
    std::unique_lock lock(mutex_);
    told_[rank] = mine;
    changed_.notify_all();
    changed_.wait(lock, [&] { return std::all_of(ranks.begin(), ranks.end(), [&](int r) { return told_.count(r); }); });
    std::vector<std::string> values;
    for (const int r : ranks) values.push_back(told_[r]);
    return values;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::string> told_;
};

struct Transports {
  Communicators comms;
  std::vector<std::string> words, notices;
};

// Around Local ones, which play the network between hosts. The failpoint comm.host says who is on another host.
inline Transports share_memory_of_threads(int world_size, std::chrono::milliseconds silence = std::chrono::hours(1)) {
  Communicators inner = make_local(world_size);
  std::vector<MemoryOffer> offers;
  std::vector<std::string> texts;
  for (int rank = 0; rank < world_size; ++rank) texts.push_back(to_text(offers.emplace_back(rank).word()));
  Board board;
  std::vector<std::future<Transport>> joining;
  for (int rank = 0; rank < world_size; ++rank) {
    joining.push_back(std::async(std::launch::async, [&, rank] {
      const TellRanks tell = [&](const std::string& mine, const std::vector<int>& ranks) {
        return board.tell(rank, mine, ranks);
      };
      return share_memory(std::move(inner[rank]), "Local", std::move(offers[rank]), texts, tell, silence);
    }));
  }
  Transports all;
  for (auto& one : joining) {
    Transport transport = one.get();
    all.comms.push_back(std::move(transport.comm));
    all.words.push_back(transport.words);
    all.notices.push_back(transport.notice);
  }
  return all;
}

inline Communicators make_sharing(int world_size) {
  return share_memory_of_threads(world_size).comms;
}

// Odd ranks are on another host than even ones.
inline Communicators make_two_hosts(int world_size) {
  std::string entries;
  for (int rank = 1; rank < world_size; rank += 2) {
    entries += (entries.empty() ? "" : ";") + ("comm.host=spoil@rank" + std::to_string(rank)) + "@every";
  }
  set_failpoints(entries);
  Communicators ranks = make_sharing(world_size);
  set_failpoints("");
  return ranks;
}

// What tests of ranks that are threads run on.
struct Backend {
  const char* name;
  MakeRanks make;
};
inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}
inline constexpr Backend kBackends[] = {
    {"Local", make_local}, {"SharedMemory", make_sharing}, {"TwoHosts", make_two_hosts}};

// Runs body on world_size threads; rethrows the first rank's exception after all have ended. A rank that throws leaves,
// which frees the others.
inline void run_ranks(int world_size, const std::function<void(Communicator&)>& body, MakeRanks make = make_local) {
  Communicators ranks = make(world_size);
  std::vector<std::exception_ptr> errors(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*ranks[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
      ranks[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace trireme::comm
