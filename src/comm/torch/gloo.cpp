// c10d's ProcessGroupGloo as ordered bytes between pairs, with the abort that it lacks.
#include <ATen/ops/from_blob.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "base/error.h"
#include "comm/torch/c10d_store.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr int kAbortTag = 0x7fffffff;
constexpr milliseconds kAbortExpiry{1};

at::Tensor as_tensor(const std::byte* bytes, std::size_t count) {
  return at::from_blob(const_cast<std::byte*>(bytes), {static_cast<std::int64_t>(count)}, at::kByte);
}

// GLOO_SOCKET_IFNAME has its meaning for c10d here too.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& local_address) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface == nullptr) return c10d::ProcessGroupGloo::createDeviceForHostname(local_address);
  try {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  } catch (const std::exception& error) {
    throw Error(3052, "environment", "GLOO_SOCKET_IFNAME is \"" + std::string(interface) + "\": " + words_of(error),
                "name one interface of this machine (`ip addr` lists them), or unset it");
  }
}

// One rank's end of the group, shared by the communicator and the transfers under way.
class Group {
 public:
  Group(const JobStore& store, const GlooOptions& options) : rank_(options.rank), silence_(options.silence) {
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.connect);
    gloo->threads = 1;  // they serve Gloo's own collectives, which nobody calls
    gloo->devices.push_back(make_device(options.local_address));
    auto keys = c10::make_intrusive<c10d::PrefixStore>("gloo", store.keys);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(keys, options.rank, options.world_size, gloo);
  }

  int rank() const { return rank_; }
  int world_size() const { return group_->getSize(); }

  // Starts a transfer; finish() must follow.
  WorkPtr start(bool sends, const std::byte* bytes, std::size_t count, int peer, int tag) {
    throw_if_aborted();
    std::vector<at::Tensor> tensors{as_tensor(bytes, count)};
    WorkPtr work;
    try {
      work = sends ? group_->send(tensors, peer, tag) : group_->recv(tensors, peer, tag);
    } catch (const std::exception& error) {
      throw failed_error(peer, error);
    }
    const std::lock_guard lock(mutex_);
    under_way_.insert(work);
    if (aborted_) work->abort();
    return work;
  }

  void throw_if_aborted() const {
    if (const auto reason = aborted()) throw aborted_error(*reason);
  }

  void finish(const WorkPtr& work) {
    const std::lock_guard lock(mutex_);
    under_way_.erase(work);
  }

  void wait(c10d::Work& work, int peer) {
    try {
      if (work.wait(silence_)) return;
    } catch (const std::exception& error) {
      throw failed_error(peer, error);
    }
    throw aborted_error(aborted().value_or("the transfer was cancelled"));
  }

  // An expired receive closes every pair of the group: nothing touches the callers' bytes any more, and the peers
  // notice. A pair that is broken already fails at once and closes nothing, hence one for each peer. Then every wait is
  // ended: Gloo forgets a send whose connection breaks just as the peer asks for its bytes.
  void abort(const std::string& reason) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return;
      aborted_ = reason;
    }
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer != rank_) expire_receive(peer);
    }
    const std::lock_guard lock(mutex_);
    for (const WorkPtr& work : under_way_) work->abort();
  }

 private:
  void expire_receive(int peer) noexcept {
    try {
      std::byte never{};
      std::vector<at::Tensor> tensors{as_tensor(&never, 1)};
      group_->recv(tensors, peer, kAbortTag)->wait(kAbortExpiry);
    } catch (const std::exception&) {
      // The expiry is what is wanted.
    }
  }

  std::optional<std::string> aborted() const {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }

  std::string place() const { return "rank " + std::to_string(rank_); }
  Error aborted_error(const std::string& reason) const {
    return Error(1102, place(), "communication was broken off: " + reason);
  }
  Error failed_error(int peer, const std::exception& error) const {
    if (const auto reason = aborted()) return aborted_error(*reason);
    return Error(1101, place(), "no connection to rank " + std::to_string(peer) + " any more: " + words_of(error));
  }

  const int rank_;
  const milliseconds silence_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  mutable std::mutex mutex_;
  std::optional<std::string> aborted_;
  std::set<WorkPtr> under_way_;
};

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(std::shared_ptr<Group> group, WorkPtr work, int peer)
      : group_(std::move(group)), work_(std::move(work)), peer_(peer) {}
  GlooTransfer(const GlooTransfer&) = delete;
  GlooTransfer& operator=(const GlooTransfer&) = delete;

  // Bytes that nobody waited for are about to go away under Gloo's feet, and what follows could not be matched.
  ~GlooTransfer() override {
    group_->finish(work_);
    if (!done_) group_->abort("a transfer with rank " + std::to_string(peer_) + " was dropped while under way");
  }

  void wait() override {
    if (done_) return;
    group_->wait(*work_, peer_);
    done_ = true;
  }

 private:
  std::shared_ptr<Group> group_;
  WorkPtr work_;
  int peer_;
  bool done_ = false;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const JobStore& store, const GlooOptions& options)
      : group_(std::make_shared<Group>(store, options)), sent_(options.world_size), received_(options.world_size) {}

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }

  std::unique_ptr<Transfer> send(std::span<const std::byte> bytes, int to) override {
    return start(true, bytes, to, sent_);
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> bytes, int from) override {
    return start(false, bytes, from, received_);
  }

  void abort(const std::string& reason) noexcept override { group_->abort(reason); }
  void throw_if_broken() const override { group_->throw_if_aborted(); }

 private:
  // The n-th transfer of a pair carries tag n on both ends: Gloo matches by tag.
  std::unique_ptr<Transfer> start(bool sends, std::span<const std::byte> bytes, int peer, std::vector<int>& count) {
    TRIREME_CHECK(peer >= 0 && peer < world_size() && peer != rank(), "no such peer: rank " + std::to_string(peer));
    if (bytes.empty()) return std::make_unique<EmptyTransfer>();
    const int tag = count[peer];
    WorkPtr work = group_->start(sends, bytes.data(), bytes.size(), peer, tag);
    count[peer] = (tag + 1) % kAbortTag;
    return std::make_unique<GlooTransfer>(group_, std::move(work), peer);
  }

  std::shared_ptr<Group> group_;
  std::vector<int> sent_, received_;  // by peer
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_on_c10d(const JobStore& store, const GlooOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);  // Gloo writes to peers that are gone with plain writev
  try {
    return std::make_unique<GlooCommunicator>(store, options);
  } catch (const Error&) {
    throw;  // the break, through the agent's store
  } catch (const std::exception& error) {
    throw Error(1110, "rank " + std::to_string(options.rank), "cannot connect to the other ranks: " + words_of(error));
  }
}

}  // namespace trireme::comm
