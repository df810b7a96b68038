#include "base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace trireme {
namespace {

enum class Action { raise, kill, exit, hang, sleep, delay, spoil };

struct Entry {
  std::string name;
  Action action = Action::raise;
  int argument = 0;
  int rank = -1;     // -1: any
  int fires_on = 1;  // 0: every hit
  int hits = 0;
};

[[noreturn]] void reject(std::string_view entry, const std::string& why) {
  throw Error(3090, "TRIREME_FAILPOINTS", "cannot read \"" + std::string(entry) + "\": " + why,
              "write NAME=ACTION[@rankR][@N|@every] with throw, kill, exit(CODE), hang, sleep(MS), delay(US) or spoil, "
              "separated "
              "by ;");
}

int number(std::string_view entry, std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) {
    reject(entry, "\"" + std::string(digits) + "\" is not a number");
  }
  return value;
}

void read_action(std::string_view text, std::string_view word, Entry& entry) {
  const auto with_argument = [&](std::string_view name) {
    return word.size() > name.size() + 2 && word.starts_with(name) && word[name.size()] == '(' && word.back() == ')';
  };
  if (word == "throw") {
    entry.action = Action::raise;
  } else if (word == "kill") {
    entry.action = Action::kill;
  } else if (word == "hang") {
    entry.action = Action::hang;
  } else if (word == "spoil") {
    entry.action = Action::spoil;
  } else if (with_argument("exit")) {
    entry.action = Action::exit;
    entry.argument = number(text, word.substr(5, word.size() - 6));
  } else if (with_argument("sleep")) {
    entry.action = Action::sleep;
    entry.argument = number(text, word.substr(6, word.size() - 7));
  } else if (with_argument("delay")) {
    entry.action = Action::delay;
    entry.argument = number(text, word.substr(6, word.size() - 7));
  } else {
    reject(text, "\"" + std::string(word) + "\" is no action");
  }
}

Entry read_entry(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) reject(text, "no NAME=ACTION");
  Entry entry;
  entry.name = text.substr(0, equals);
  std::string_view rest = text.substr(equals + 1);
  std::size_t at = rest.find('@');
  read_action(text, rest.substr(0, at), entry);
  while (at != std::string_view::npos) {
    rest = rest.substr(at + 1);
    at = rest.find('@');
    const std::string_view word = rest.substr(0, at);
    if (word.starts_with("rank")) {
      entry.rank = number(text, word.substr(4));
    } else if (word == "every") {
      entry.fires_on = 0;
    } else {
      entry.fires_on = number(text, word);
      if (entry.fires_on == 0) reject(text, "hits count from 1");
    }
  }
  return entry;
}

class Table {
 public:
  Table() {
    if (const char* text = std::getenv("TRIREME_FAILPOINTS")) replace(text);
  }

  bool armed() const { return armed_.load(std::memory_order_relaxed); }

  void replace(std::string_view text) {
    std::vector<Entry> entries;
    while (!text.empty()) {
      const std::size_t end = text.find(';');
      const std::string_view one = text.substr(0, end);
      if (!one.empty()) entries.push_back(read_entry(one));
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    const std::lock_guard lock(mutex_);
    entries_ = std::move(entries);
    armed_.store(!entries_.empty(), std::memory_order_relaxed);
  }

  // The entries that this hit sets off.
  std::vector<Entry> hit(std::string_view name, int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<Entry> fired;
    for (Entry& entry : entries_) {
      if (entry.name != name || (entry.rank >= 0 && entry.rank != rank)) continue;
      if (++entry.hits == entry.fires_on || entry.fires_on == 0) fired.push_back(entry);
    }
    return fired;
  }

 private:
  std::atomic<bool> armed_ = false;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

Table& table() {
  static Table instance;
  return instance;
}

// Every fourth time or so, for a random time: a few far too late say more than all a little.
void delay(int most_microseconds) {
  thread_local std::minstd_rand random(std::random_device{}());
  if (random() % 4 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random() % (static_cast<unsigned>(most_microseconds) + 1)));
}

void act(const Entry& entry) {
  switch (entry.action) {
    case Action::raise: throw Error(3091, "failpoint " + entry.name, "thrown on purpose (TRIREME_FAILPOINTS)");
    case Action::kill: ::kill(::getpid(), SIGKILL); [[fallthrough]];  // until the signal arrives
    case Action::hang:
      for (;;) ::pause();
    case Action::exit: ::_exit(entry.argument);
    case Action::delay: return delay(entry.argument);
    case Action::sleep: std::this_thread::sleep_for(std::chrono::milliseconds(entry.argument)); break;
    case Action::spoil: break;
  }
}

}  // namespace

bool failpoint(std::string_view name, int rank) {
  Table& points = table();
  bool spoils = false;
  if (!points.armed()) return spoils;
  for (const Entry& entry : points.hit(name, rank)) {
    act(entry);
    spoils = spoils || entry.action == Action::spoil;
  }
  return spoils;
}

void set_failpoints(std::string_view text) {
  table().replace(text);
}

}  // namespace trireme
