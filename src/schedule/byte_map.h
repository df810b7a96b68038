// What holds for each byte of a memory space, kept as runs of equal history. Bytes never touched hold Value{}.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace trireme::schedule {

template <class Value>
class ByteMap {
 public:
  // Calls f(Value&) for every run in [begin, end), split at its borders. Cost: the runs touched.
  template <class F>
  void visit(std::int64_t begin, std::int64_t end, F f) {
    if (begin >= end) return;
    split(begin);
    split(end);
    std::int64_t at = begin;
    for (auto run = runs_.lower_bound(begin); at < end; ++run) {
      if (run == runs_.end() || run->first > at) {
        const std::int64_t gap_end = run == runs_.end() ? end : std::min(end, run->first);
        run = runs_.emplace_hint(run, at, Run{gap_end, Value{}});
      }
      f(run->second.value);
      at = run->second.end;
    }
  }

  void assign(std::int64_t begin, std::int64_t end, Value value) {
    if (begin >= end) return;
    split(begin);
    split(end);
    runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(end));
    runs_.emplace(begin, Run{end, std::move(value)});
  }

 private:
  struct Run {
    std::int64_t end;
    Value value;
  };

  void split(std::int64_t at) {
    const auto after = runs_.upper_bound(at);
    if (after == runs_.begin()) return;
    const auto run = std::prev(after);
    if (run->first == at || run->second.end <= at) return;
    runs_.emplace_hint(after, at, Run{run->second.end, run->second.value});
    run->second.end = at;
  }

  std::map<std::int64_t, Run> runs_;
};

}  // namespace trireme::schedule
