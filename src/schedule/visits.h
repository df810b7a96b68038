// The order in which units work in a step, and which gathered groups come and go when. The same on all ranks, also on
// one without a micro-batch.
#pragma once
#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

// Groups to gather for a visit, this one or one to come.
struct Ahead {
  int visit = -1;
  std::vector<int> groups;
};

// A unit at work in one round: forward, loss or backward.
struct Visit {
  Op op = Op::forward;
  int unit = -1, round = -1;
  std::vector<Ahead> gathers;  // before it; also visits for which nothing is missing
  std::vector<int> releases;   // after it
};

// Nothing below it is trained, so nothing there has a backward, nor keeps anything for one. At most the head.
int lowest_trained(const ChainSpec& chain);

// Per round forward 0 .. n-2, loss, backward n-2 .. lowest_trained(). Groups that are is_gathered() come gather_ahead
// visits early, not counting those of next to no operations, and stay from one use to the next where that is near
// (gather_ahead, reuse_distance) or gather_once says so, all within max_live.
std::vector<Visit> list_visits(const ChainSpec& chain, const Options& options, int num_rounds);

}  // namespace trireme::schedule
