#include "measure/timing.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace trireme::measure {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// The times of one round.
class Round {
 public:
  Round(std::size_t works, const kernels::Stream* stream) : stream_(stream), points_(works + 1) {
    for (std::size_t i = 0; stream_ != nullptr && i <= works; ++i) events_.emplace_back(/*timed=*/true);
  }
  void mark(std::size_t point) {
    if (stream_ != nullptr) return events_[point].record(*stream_);
    points_[point] = Clock::now();
  }
  void wait() const {
    if (stream_ != nullptr) events_.back().synchronize();
  }
  double seconds(std::size_t work) const {
    if (stream_ != nullptr) return kernels::seconds_between(events_[work], events_[work + 1]);
    return seconds_between(points_[work], points_[work + 1]);
  }

 private:
  const kernels::Stream* stream_;
  std::vector<kernels::Event> events_;
  std::vector<Clock::time_point> points_;
};

}  // namespace

Timing timing_of(std::vector<double> seconds) {
  TRIREME_CHECK(!seconds.empty(), "nothing was timed");
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(std::lround(share * static_cast<double>(seconds.size() - 1)))];
  };
  return {at(0.5), at(0.1), at(0.9), std::ssize(seconds)};
}

namespace {

// For as long as goes_on says, of so many rounds, that it does.
template <class GoesOn>
std::vector<Timing> time_while(std::span<const std::function<void()>> works, const kernels::Stream* stream,
                               GoesOn goes_on) {
  std::vector<std::vector<double>> times(works.size());
  Round round(works.size(), stream);
  const auto run = [&] {
    if (stream != nullptr) works.back()();  // the device is at work while the host issues what is timed
    round.mark(0);
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i]();
      round.mark(i + 1);
    }
    round.wait();
  };
  run();
  for (int rounds = 0; goes_on(rounds); ++rounds) {
    run();
    for (std::size_t i = 0; i < works.size(); ++i) times[i].push_back(round.seconds(i));
  }
  std::vector<Timing> timings;
  for (auto& of_work : times) timings.push_back(timing_of(std::move(of_work)));
  return timings;
}

}  // namespace

std::vector<Timing> time_in_turn(std::span<const std::function<void()>> works, double seconds,
                                 const kernels::Stream* stream) {
  std::optional<Clock::time_point> start;
  return time_while(works, stream, [&](int rounds) {
    if (!start) start = Clock::now();
    return rounds < 3 || seconds_between(*start, Clock::now()) < seconds;
  });
}

std::vector<Timing> time_rounds(std::span<const std::function<void()>> works, int rounds,
                                const kernels::Stream* stream) {
  return time_while(works, stream, [&](int done) { return done < rounds; });
}

double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double start_of_process() {
  const std::string text = read_file("/proc/self/stat");
  std::istringstream fields(text.substr(text.rfind(')') + 1));  // the name may have spaces
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;  // proc(5): starttime is the 22nd
  return std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace trireme::measure
