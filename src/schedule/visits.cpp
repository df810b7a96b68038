#include "schedule/visits.h"

#include <algorithm>
#include <utility>

namespace trireme::schedule {
namespace {

// Walks the visits in order and keeps account of what is gathered.
class GatherPlanner {
 public:
  GatherPlanner(const ChainSpec& chain, const Options& options, std::vector<Visit>& visits)
      : chain_(chain), options_(options), visits_(visits), held_until_(chain.groups.size(), kNotHeld) {
    find_needs();
    find_last_ahead();
  }

  void run() {
    for (int visit = 0; visit < count(); ++visit) {
      gather_before(visit);
      release_after(visit);
    }
  }

 private:
  static constexpr int kNotHeld = -1;
  static constexpr double kHidesNothing = 0.01;  // of the operations of the visit that has most

  int count() const { return static_cast<int>(visits_.size()); }

  // next_use_[visit] holds, for each gathered group that the visit reads, the next visit that reads it.
  void find_needs() {
    std::vector<int> next(chain_.groups.size(), count());
    next_use_.resize(visits_.size());
    for (int visit = count() - 1; visit >= 0; --visit) {
      for (const int group : chain_.units[visits_[visit].unit].reads) {
        if (!chain_.groups[group].is_gathered()) continue;
        next_use_[visit].emplace_back(group, next[group]);
        next[group] = visit;
      }
    }
  }

  double operations_of(const Visit& visit) const {
    const UnitSpec& unit = chain_.units[visit.unit];
    return visit.op == Op::forward ? unit.forward_flops : unit.backward_flops;
  }

  // Behind visits of next to no operations, as those of an embedding, nothing can hide: they are not counted.
  void find_last_ahead() {
    double most = 0;
    for (const Visit& visit : visits_) most = std::max(most, operations_of(visit));
    const auto hides = [&](int visit) { return operations_of(visits_[visit]) >= kHidesNothing * most; };
    for (int visit = 0; visit < count(); ++visit) {
      int last = visit;
      for (int ahead = 0; ahead < options_.gather_ahead && last < count() - 1;) {
        if (hides(++last)) ++ahead;
      }
      last_ahead_.push_back(last);
    }
  }

  // What the visit reads and its next ones will. Those to come wait where they do not fit beside what is there.
  void gather_before(int index) {
    for (int visit = index; visit <= last_ahead_[index]; ++visit) {
      std::vector<int>& groups = visits_[index].gathers.emplace_back(Ahead{visit, {}}).groups;
      for (const auto& [group, next] : next_use_[visit]) {
        if (held_until_[group] != kNotHeld) continue;
        if (visit > index && !fits(group, index, visit)) return;
        held_until_[group] = visit;
        groups.push_back(group);
      }
    }
  }

  void release_after(int visit) {
    for (const auto& [group, next] : next_use_[visit]) {
      if (stays_gathered(visit, next, group)) {
        held_until_[group] = next;
        continue;
      }
      held_until_[group] = kNotHeld;
      visits_[visit].releases.push_back(group);
    }
  }

  // Whether a group may be there from one visit to another: with what is held then and what each of them reads it
  // keeps max_live, unless a visit's own need is larger, beside which nothing else is held.
  bool fits(int group, int from, int until) const {
    if (options_.max_live == 0) return true;
    for (int visit = from; visit <= until; ++visit) {
      std::vector<bool> live(chain_.groups.size(), false);
      for (const auto& [read, next] : next_use_[visit]) live[read] = true;
      const std::int64_t needed = elements_of(live);
      for (std::size_t other = 0; other < live.size(); ++other) {
        if (held_until_[other] >= visit) live[other] = true;
      }
      live[group] = true;
      if (elements_of(live) > std::max(options_.max_live, needed)) return false;
    }
    return true;
  }

  std::int64_t elements_of(const std::vector<bool>& groups) const {
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      if (groups[group]) elements += chain_.groups[group].numel;
    }
    return elements;
  }

  // Elements of other gathered groups that are needed between two visits.
  std::int64_t elements_between(int visit, int next, int group) const {
    std::vector<bool> others(chain_.groups.size(), false);
    for (int between = visit + 1; between < next; ++between) {
      for (const auto& [other, ignored] : next_use_[between]) others[other] = other != group;
    }
    return elements_of(others);
  }

  bool stays_gathered(int visit, int next, int group) const {
    if (next == count() || !fits(group, visit + 1, next)) return false;
    if (options_.gather_once || next <= last_ahead_[visit]) return true;
    const std::int64_t between = elements_between(visit, next, group);
    return between == 0 || between < options_.reuse_distance;
  }

  const ChainSpec& chain_;
  const Options& options_;
  std::vector<Visit>& visits_;
  std::vector<std::vector<std::pair<int, int>>> next_use_;  // per visit: (gathered group, visit that reads it next)
  std::vector<int> last_ahead_;                             // per visit: up to which one groups are gathered with it
  std::vector<int> held_until_;                             // the visit for which a group is there
};

}  // namespace

int lowest_trained(const ChainSpec& chain) {
  const auto is_trained = [](const UnitSpec& unit) { return !unit.gradients.empty(); };
  const auto found = std::find_if(chain.units.begin(), chain.units.end() - 1, is_trained);
  return static_cast<int>(found - chain.units.begin());
}

std::vector<Visit> list_visits(const ChainSpec& chain, const Options& options, int num_rounds) {
  const int head = static_cast<int>(chain.units.size()) - 1, lowest = lowest_trained(chain);
  std::vector<Visit> visits;
  const auto add = [&](Op op, int unit, int round) { visits.push_back({op, unit, round, {}, {}}); };
  for (int round = 0; round < num_rounds; ++round) {
    for (int unit = 0; unit < head; ++unit) add(Op::forward, unit, round);
    add(Op::loss, head, round);
    for (int unit = head - 1; unit >= lowest; --unit) add(Op::backward, unit, round);
  }
  GatherPlanner(chain, options, visits).run();
  return visits;
}

}  // namespace trireme::schedule
