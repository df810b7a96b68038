// The control channel without an agent: a key that the first failing rank writes and the others poll.
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/message.h"
#include "comm/store.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPollInterval{200};
constexpr milliseconds kReportLimit{1000};
constexpr milliseconds kLeaveLimit{1000};
// Longer than a rank waits for the cause of its failure: what its connections told comes first.
constexpr milliseconds kLostStoreLimit{3000};
constexpr const char* kFailureKey = "failure";

std::string seen_key(int rank) {
  return "failure/seen/" + std::to_string(rank);
}

// A call on a store can block for as long as its host stands still, so each runs on a thread that may be left behind:
// what the thread needs is shared with it.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool leaving = false;     // the poller is to end
  bool polled = false;      // the poller has ended
  bool reported = false;    // the report is written
  bool job_failed = false;  // a failure was reported or heard here
};

// The store went with the rank that served it. Connections to that rank tell whether this was a failure; but Gloo
// forgets a send whose connection breaks just as the peer asks for its bytes, and then nothing would end the wait.
void break_unless_leaving(const std::shared_ptr<Shared>& shared,
                          const std::function<void(const RankFailure&)>& on_break) {
  std::unique_lock lock(shared->mutex);
  if (shared->changed.wait_for(lock, kLostStoreLimit, [&] { return shared->leaving; })) return;
  lock.unlock();
  on_break({0, 1101, "store", "the rank that served it is gone", ""});
}

void poll(const std::shared_ptr<Shared>& shared, JobStore& store, int rank,
          const std::function<void(const RankFailure&)>& on_break) {
  std::unique_lock lock(shared->mutex);
  while (!shared->leaving) {
    lock.unlock();
    std::optional<RankFailure> failure;
    try {
      failure = find_failure(store);
      if (failure) set_key(store, seen_key(rank), "");
    } catch (const Error&) {
      return break_unless_leaving(shared, on_break);
    }
    if (failure) {
      lock.lock();
      shared->job_failed = true;
      const bool told = !shared->leaving && failure->rank != rank;
      lock.unlock();
      if (told) on_break(*failure);
      return;
    }
    lock.lock();
    shared->changed.wait_for(lock, kPollInterval, [&] { return shared->leaving; });
  }
}

class StoreControl final : public ControlChannel {
 public:
  StoreControl(JobStorePtr store, int rank, int world_size)
      : store_(std::move(store)),
        reports_(clone_store(*store_)),
        polls_(clone_store(*store_)),
        rank_(rank),
        world_size_(world_size) {}
  StoreControl(const StoreControl&) = delete;
  StoreControl& operator=(const StoreControl&) = delete;

  ~StoreControl() override {
    std::unique_lock lock(shared_->mutex);
    shared_->leaving = true;
    shared_->changed.notify_all();
    const bool polled =
        !poller_.joinable() || shared_->changed.wait_for(lock, kLeaveLimit, [&] { return shared_->polled; });
    const bool last_word = serves(*store_) && shared_->job_failed;
    lock.unlock();
    if (poller_.joinable()) polled ? poller_.join() : poller_.detach();
    if (last_word) await_readers();
  }

  void report(const RankFailure& failure) noexcept override {
    std::unique_lock lock(shared_->mutex);
    shared_->job_failed = true;
    std::thread([shared = shared_, store = reports_, rank = rank_,
                 json = encode({.op = Message::Op::broken, .failure = failure})] {
      try {
        claim_key(*store, kFailureKey, json);
        set_key(*store, seen_key(rank), "");
      } catch (const Error&) {
        // Nobody is left to tell.
      }
      const std::lock_guard done(shared->mutex);
      shared->reported = true;
      shared->changed.notify_all();
    }).detach();
    shared_->changed.wait_for(lock, kReportLimit, [&] { return shared_->reported; });
  }

  void listen(std::function<void(const RankFailure&)> on_break) override {
    TRIREME_CHECK(!poller_.joinable(), "listen is called once");
    poller_ = std::thread([shared = shared_, store = polls_, rank = rank_, on_break = std::move(on_break)] {
      poll(shared, *store, rank, on_break);
      const std::lock_guard done(shared->mutex);
      shared->polled = true;
      shared->changed.notify_all();
    });
  }

 private:
  // The keys end with this process: it leaves when the other ranks have read the failure, or will not any more.
  void await_readers() {
    const auto deadline = steady_clock::now() + kLeaveLimit;
    try {
      for (int peer = 0; peer < world_size_; ++peer) {
        while (peer != rank_ && !find_key(*store_, seen_key(peer)) && steady_clock::now() < deadline) {
          std::this_thread::sleep_for(milliseconds(5));
        }
      }
    } catch (const Error&) {
      // Its own server is gone: so are its readers.
    }
  }

  const JobStorePtr store_, reports_, polls_;
  const int rank_, world_size_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread poller_;
};

}  // namespace

std::optional<RankFailure> find_failure(JobStore& store) {
  const auto json = find_key(store, kFailureKey);
  return json ? std::optional(decode(*json).failure) : std::nullopt;
}

std::unique_ptr<ControlChannel> make_store_control(JobStorePtr store, int rank, int world_size) {
  return std::make_unique<StoreControl>(std::move(store), rank, world_size);
}

}  // namespace trireme::comm
