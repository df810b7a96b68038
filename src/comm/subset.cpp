#include "comm/subset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace trireme::comm {
namespace {

class Subset final : public Communicator {
 public:
  Subset(Communicator& all, std::vector<int> ranks) : all_(all), ranks_(std::move(ranks)) {
    const auto self = std::find(ranks_.begin(), ranks_.end(), all.rank());
    TRIREME_CHECK(self != ranks_.end(), "a subset of ranks was made by one that is not in it");
    rank_ = static_cast<int>(self - ranks_.begin());
  }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(ranks_.size()); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> bytes, int to) override {
    return all_.send(bytes, ranks_.at(static_cast<std::size_t>(to)));
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> bytes, int from) override {
    return all_.receive(bytes, ranks_.at(static_cast<std::size_t>(from)));
  }
  void abort(const std::string& reason) noexcept override { all_.abort(reason); }
  void throw_if_broken() const override { all_.throw_if_broken(); }

 private:
  Communicator& all_;
  std::vector<int> ranks_;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_subset(Communicator& all, std::vector<int> ranks) {
  return std::make_unique<Subset>(all, std::move(ranks));
}

}  // namespace trireme::comm
