// Plays ranks as threads: one thread a rank, each with its communicator.
#pragma once
#include <exception>
#include <functional>
#include <thread>

#include "comm/communicator.h"

namespace trireme::comm {

// Runs body on world_size threads; rethrows the first rank's exception after all have ended. A rank that throws leaves,
// which frees the others.
inline void run_ranks(int world_size, const std::function<void(Communicator&)>& body) {
  std::vector<std::unique_ptr<Communicator>> ranks = make_local(world_size);
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
