#include "stand_in/streams.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/kernels.h"
#include "stand_in/memory.h"
#include "support/seed.h"

namespace trireme::stand_in {
namespace {

struct Stream;

// Where a record() stands in its stream.
struct Point {
  Stream* stream;
  bool is_reached = false;
  std::chrono::steady_clock::time_point time = {};
};
using Event = std::shared_ptr<Point>;  // the last record(), null before the first

struct Item {  // one of the four
  std::function<void()> work = nullptr;
  Event recorded = nullptr, awaited = nullptr;
  std::function<bool()> is_raised = nullptr;
};
struct Stream {
  std::deque<Item> items;
};

thread_local Stream* current = nullptr;

// Who calls it has locked it.
class Device {
 public:
  std::mutex mutex;
  std::vector<Stream*> streams;

  Device() {
    const unsigned seed = testing::test_seed();
    std::fprintf(stderr, "stand-in for a CUDA device: TRIREME_TEST_SEED=%u\n", seed);
    random_.seed(seed);
    std::thread([this] {
      for (;;) {
        given_.acquire();
        std::packaged_task<void()> task = std::move(task_);
        task();
      }
    }).detach();
  }

  unsigned below(std::size_t n) { return static_cast<unsigned>(random_() % n); }

  void run(const std::function<void()>& work) {
    task_ = std::packaged_task<void()>([&] {
      work();
      let_reach_device(false);
    });
    std::future<void> done = task_.get_future();
    given_.release();
    done.get();
  }

  void add(Stream& stream, Item item) {
    stream.items.push_back(std::move(item));
    if (below(16) > 0) return;
    Stream& other = *streams[below(streams.size())];
    goes_on_until(other, [&other, count = below(32)]() mutable { return other.items.empty() || count-- == 0; });
  }

  // False: a flag that nobody has raised is before it.
  template <class Condition>
  bool goes_on_until(Stream& stream, Condition is_enough) {
    bool goes_on = true;
    run([&] {
      while (goes_on && !is_enough()) goes_on = runs_next(stream);
    });
    return goes_on;
  }
  // Once more with all that others can do; lock: the caller's.
  template <class Condition>
  bool goes_on_with_all(Stream& stream, Condition is_enough) {
    if (goes_on_until(stream, is_enough)) return true;
    for (Stream* other : streams) goes_on_until(*other, [other] { return other->items.empty(); });
    return goes_on_until(stream, is_enough);
  }
  template <class Condition>
  void run_until(std::unique_lock<std::mutex>& lock, Stream& stream, Condition is_enough) {
    while (!goes_on_with_all(stream, is_enough)) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock.lock();
    }
  }

 private:
  // What is awaited comes first. It is never one of this stream's items: it was issued before this one. False: it waits
  // for a flag.
  static bool runs_next(Stream& stream) {
    const Item& item = stream.items.front();
    if (item.awaited != nullptr) {
      while (!item.awaited->is_reached) {
        if (!runs_next(*item.awaited->stream)) return false;
      }
    }
    if (item.is_raised != nullptr && !item.is_raised()) return false;
    const Item taken = std::move(stream.items.front());
    stream.items.pop_front();
    if (taken.work != nullptr) taken.work();
    if (taken.recorded != nullptr) {
      taken.recorded->is_reached = true;
      taken.recorded->time = std::chrono::steady_clock::now();
    }
    return true;
  }

  std::mt19937 random_;
  std::packaged_task<void()> task_;
  std::binary_semaphore given_{0};
};

Device& device() {
  static Device& one = *new Device;  // its thread never ends
  return one;
}

Stream& stream_of(void* stream) {
  return *static_cast<Stream*>(stream);
}
Event& event_of(void* event) {
  return *static_cast<Event*>(event);
}

void add_work(bool on_host, std::function<void()> work) {
  TRIREME_CHECK(current != nullptr, "a kernel of a device was called without a stream");
  const auto run = [on_host, work = std::move(work)] {
    let_reach_device(!on_host);
    if (!on_host) kernels::set_num_threads(1);  // what the host called may have set its own
    work();
  };
  const std::lock_guard lock(device().mutex);
  device().add(*current, {.work = run});
}

}  // namespace

void* make_stream(bool) {
  const std::lock_guard lock(device().mutex);
  return device().streams.emplace_back(new Stream);
}
void destroy_stream(void* stream) {
  const std::lock_guard lock(device().mutex);
  std::erase(device().streams, stream);
  if (std::uncaught_exceptions() > 0) return;  // that error says more than what it left undone
  std::deque<Item>& items = stream_of(stream).items;
  for (const Item& item : items) {
    TRIREME_CHECK(item.work == nullptr, "a stream ends before its work, whose memory may end too");
  }
  TRIREME_CHECK(device().goes_on_until(stream_of(stream), [&] { return items.empty(); }), "a stream ends that waits");
  delete &stream_of(stream);
}
void synchronize_stream(void* stream) {
  std::unique_lock lock(device().mutex);
  device().run_until(lock, stream_of(stream), [&] { return stream_of(stream).items.empty(); });
}
void wait(void* stream, void* event) {
  const std::lock_guard lock(device().mutex);
  if (event_of(event) != nullptr) device().add(stream_of(stream), {.awaited = event_of(event)});
}

void* make_event(bool) {
  return new Event;
}
void destroy_event(void* event) {
  delete &event_of(event);
}
void record(void* event, void* stream) {
  const std::lock_guard lock(device().mutex);
  event_of(event) = std::make_shared<Point>(Point{&stream_of(stream)});
  device().add(stream_of(stream), {.recorded = event_of(event)});
}
void synchronize_event(void* event) {
  std::unique_lock lock(device().mutex);
  const Event point = event_of(event);
  if (point == nullptr || point->is_reached) return;
  device().run_until(lock, *point->stream, [&] { return point->is_reached; });
}
bool is_reached(void* event) {
  const std::lock_guard lock(device().mutex);
  const Event point = event_of(event);
  if (point == nullptr || point->is_reached) return true;
  return device().below(2) > 0 && device().goes_on_with_all(*point->stream, [&] { return point->is_reached; });
}
double seconds_between(void* first, void* second) {
  const std::lock_guard lock(device().mutex);
  const Event &begin = event_of(first), &end = event_of(second);
  TRIREME_CHECK(begin->is_reached && end->is_reached, "the time of an event that is not reached");
  return std::chrono::duration<double>(end->time - begin->time).count();
}

void* set_stream(void* stream) {
  return std::exchange(current, static_cast<Stream*>(stream));
}
void* native_stream() {
  return current;
}
void raise_flag(std::uint32_t* flag, std::uint32_t value) {
  add_work(false, [flag, value] { *flag = value; });
}
void await_flag(const std::uint32_t* flag, std::uint32_t value) {
  TRIREME_CHECK(current != nullptr, "a flag was awaited without a stream");
  const auto is_raised = [flag, value] {
    let_reach_device(true);
    return static_cast<std::int32_t>(*flag - value) >= 0;
  };
  const std::lock_guard lock(device().mutex);
  device().add(*current, {.is_raised = is_raised});
}
void issue(std::function<void()> work) {
  add_work(false, std::move(work));
}
void call_on_host(std::function<void()> work) {
  add_work(true, std::move(work));
}
void run_now(const std::function<void()>& work) {
  const std::lock_guard lock(device().mutex);
  device().run([&] {
    let_reach_device(true);
    work();
  });
}

}  // namespace trireme::stand_in
