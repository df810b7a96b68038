// The control channels that need no other process: none, and that of ranks that are threads, where the first reported
// failure is delivered to all other ranks.
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/control.h"

namespace trireme::comm {
namespace {

struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<RankFailure> failure;  // the first one; it stays
};

class LocalControl final : public ControlChannel {
 public:
  LocalControl(std::shared_ptr<Board> board, int rank) : board_(std::move(board)), rank_(rank) {}
  LocalControl(const LocalControl&) = delete;
  LocalControl& operator=(const LocalControl&) = delete;
  ~LocalControl() override {
    {
      const std::lock_guard lock(board_->mutex);
      leaving_ = true;
    }
    board_->changed.notify_all();
    if (listener_.joinable()) listener_.join();
  }

  void report(const RankFailure& failure) noexcept override {
    {
      const std::lock_guard lock(board_->mutex);
      if (!board_->failure) board_->failure = failure;
    }
    board_->changed.notify_all();
  }

  void listen(std::function<void(const RankFailure&)> on_break) override {
    TRIREME_CHECK(!listener_.joinable(), "listen is called once");
    listener_ = std::thread([this, on_break = std::move(on_break)] {
      std::unique_lock lock(board_->mutex);
      board_->changed.wait(lock, [&] { return leaving_ || board_->failure; });
      if (leaving_ || board_->failure->rank == rank_) return;
      const RankFailure failure = *board_->failure;
      lock.unlock();
      on_break(failure);
    });
  }

 private:
  std::shared_ptr<Board> board_;
  int rank_;
  bool leaving_ = false;  // guarded by board_->mutex
  std::thread listener_;
};

class NoControl final : public ControlChannel {
 public:
  void report(const RankFailure&) noexcept override {}
  void listen(std::function<void(const RankFailure&)>) override {}
};

}  // namespace

Error to_error(const RankFailure& failure) {
  const std::string rank = "rank " + std::to_string(failure.rank);
  std::string place = failure.place;
  if (failure.rank >= 0) place = place.empty() || place == rank ? rank : rank + ": " + place;
  return Error(failure.code, place, failure.message, failure.remedy);
}

std::unique_ptr<ControlChannel> make_no_control() {
  return std::make_unique<NoControl>();
}

std::vector<std::unique_ptr<ControlChannel>> make_local_control(int world_size) {
  const auto board = std::make_shared<Board>();
  std::vector<std::unique_ptr<ControlChannel>> channels;
  for (int rank = 0; rank < world_size; ++rank) channels.push_back(std::make_unique<LocalControl>(board, rank));
  return channels;
}

}  // namespace trireme::comm
