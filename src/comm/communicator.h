// A set of ranks that talk to each other: ordered bytes between pairs, and an abort that frees every waiting call.
//
// Backends: Local (ranks as threads of one process), Gloo (c10d, over a store). Collectives are built on it in
// comm/collectives.h. One thread at a time uses a Communicator; abort() may come from any thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

// A transfer under way. The bytes stay valid and untouched (send: unchanged) until wait() returned. Destroying it
// before that breaks the communication with the peer, since what follows could no longer be matched.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait() = 0;  // throws Error TR1101 when a peer is gone, TR1102 when the communicator was aborted
};

// Of no bytes: done at once.
class EmptyTransfer final : public Transfer {
 public:
  void wait() override {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Transfers between two ranks match in issue order, and sizes must be equal (TR1103 where the backend can see it).
  // Neither call blocks on the peer. Post sends before waiting for receives. Empty transfers are done at once and match
  // nothing.
  virtual std::unique_ptr<Transfer> send(std::span<const std::byte> bytes, int to) = 0;
  virtual std::unique_ptr<Transfer> receive(std::span<std::byte> bytes, int from) = 0;

  // Frees every blocked wait of this rank within 200 ms and makes all later calls throw TR1102 with the reason.
  // Idempotent. Must be called on every rank of the set.
  virtual void abort(const std::string& reason) noexcept = 0;
  // For who waits for something else, where peers take part: throws TR1102 after abort() of this rank, TR1101 after
  // that of another which is known of here, or once the process of one is gone that had not left. The latter is seen of
  // ranks of this host that share memory; of others, their connection tells only who waits for it.
  virtual void throw_if_broken() const = 0;
};

// World of one: nothing to send to.
std::unique_ptr<Communicator> make_single();

// n communicators of one process, one for each thread that plays a rank. They share their state and may outlive each
// other.
std::vector<std::unique_ptr<Communicator>> make_local(int world_size);

}  // namespace trireme::comm
