// Rounds of transfers of random sizes between random ranks: the same on all of them, from a seed.
#pragma once
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/same_host.h"

namespace trireme::comm {

struct RandomMessage {
  int from, to;
  std::size_t size;
  std::uint64_t seed;
};

inline std::size_t random_size(std::mt19937_64& random, std::size_t capacity) {
  const std::size_t sizes[] = {0,
                               1,
                               7,
                               8,
                               9,
                               capacity - 9,
                               capacity - 8,
                               capacity - 7,
                               capacity - 1,
                               capacity,
                               capacity + 1,
                               3 * capacity + 5,
                               random() % 64,
                               random() % 5000,
                               random() % (2 * capacity)};
  return sizes[random() % std::size(sizes)];
}

inline std::vector<std::byte> bytes_of(const RandomMessage& message) {
  std::mt19937_64 random(message.seed);
  std::vector<std::byte> bytes(message.size);
  for (std::size_t i = 0; i < bytes.size(); i += 97) bytes[i] = std::byte(random());
  if (!bytes.empty()) bytes.back() = std::byte(random());
  return bytes;
}

// All ranks post a round's transfers in its order, sends and receives mixed, and wait for them in orders of their own.
inline void random_round(Communicator& comm, std::mt19937_64& random) {
  const int me = comm.rank(), world_size = comm.world_size();
  std::vector<RandomMessage> messages(1 + random() % 12);
  for (RandomMessage& message : messages) {
    message.from = static_cast<int>(random() % world_size);
    message.to = static_cast<int>((message.from + 1 + random() % (world_size - 1)) % world_size);
    message.size = random_size(random, ring_capacity(world_size));
    message.seed = random();
  }
  std::vector<std::vector<std::byte>> bytes(messages.size());
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].from == me) {
      bytes[i] = bytes_of(messages[i]);
      transfers.push_back(comm.send(bytes[i], messages[i].to));
    } else if (messages[i].to == me) {
      bytes[i].resize(messages[i].size);
      transfers.push_back(comm.receive(bytes[i], messages[i].from));
    }
  }
  std::mt19937_64 own_order(messages[0].seed + me);
  std::shuffle(transfers.begin(), transfers.end(), own_order);
  for (const auto& transfer : transfers) transfer->wait();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    TRIREME_CHECK(messages[i].to != me || bytes[i] == bytes_of(messages[i]),
                  "message " + std::to_string(i) + " of " + std::to_string(messages[i].size) + " bytes");
  }
}

}  // namespace trireme::comm
