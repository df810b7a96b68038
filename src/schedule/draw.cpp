#include "schedule/draw.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <set>
#include <vector>

namespace trireme::schedule {
namespace {

struct Kind {
  char letter;
  const char* name;
};
constexpr Kind kIdle = {'.', "idle"};
constexpr Kind kKinds[] = {{'C', "count"},    {'G', "gather"},
                           {'E', "release"},  {'F', "forward"},
                           {'L', "loss"},     {'R', "recompute"},
                           {'B', "backward"}, {'A', "accumulate"},
                           {'X', "reduce"},   {'N', "norm"},
                           {'P', "report"},   {'S', "step"},
                           {'O', "offload"},  {'H', "fetch from the host"},
                           {'K', "snapshot"}};  // as Op
constexpr const char* kLaneNames[] = {"compute", "reduce", "copy"};
constexpr int kMargin = 10;  // characters before the first column
constexpr int kLeastWidth = 48;
constexpr double kRounding = 1e-6;  // of a column: what rounding leaves over a border

struct Window {
  Span time;
  int columns = 1;
  double column_s() const { return time.length() / columns; }
  double column_of(double moment) const { return time.length() > 0 ? (moment - time.start) / column_s() : 0; }
};

std::string row(const std::string& title, const std::string& cells) {
  std::string line = "  " + title;
  line.resize(kMargin, ' ');
  line += cells;
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

// Calls f(instruction, first column, last column + 1) for those of the lane that meet the window; columns are whole and
// fractions.
template <class F>
void visit(const Program& program, const Timeline& timeline, Lane lane, const Window& window, F f) {
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    if (program.instructions[i].lane != lane || span.end <= window.time.start || span.start >= window.time.end)
      continue;
    f(program.instructions[i], std::max(0.0, window.column_of(span.start)),
      std::min<double>(window.columns, window.column_of(span.end)));
  }
}

// The letter of what took most of each column: small where the lane is idle for more than half of it.
std::string draw_lane(const Program& program, const Timeline& timeline, Lane lane, const Window& window) {
  constexpr int kNumKinds = static_cast<int>(std::size(kKinds));
  std::vector<double> share(static_cast<std::size_t>(window.columns) * kNumKinds, 0.0);
  visit(program, timeline, lane, window, [&](const Instruction& instruction, double begin, double end) {
    for (int column = static_cast<int>(begin); column < end && column < window.columns; ++column) {
      share[column * kNumKinds + static_cast<int>(instruction.op)] +=
          std::min(end, column + 1.0) - std::max<double>(begin, column);
    }
  });
  std::string cells;
  for (int column = 0; column < window.columns; ++column) {
    const auto first = share.begin() + column * kNumKinds, last = first + kNumKinds;
    const auto most = std::max_element(first, last);
    const char letter = kKinds[most - first].letter;
    const double busy = std::accumulate(first, last, 0.0);
    cells += busy < kRounding ? kIdle.letter : busy < 0.5 ? static_cast<char>(std::tolower(letter)) : letter;
  }
  return cells;
}

// Below each instruction its unit's or group's number, where that leaves a blank before the next.
std::string draw_numbers(const Program& program, const Timeline& timeline, Lane lane, const Window& window) {
  std::string cells(window.columns, ' ');
  visit(program, timeline, lane, window, [&](const Instruction& instruction, double begin, double end) {
    const int number = lane == Lane::compute ? instruction.unit : instruction.group;
    if (number < 0) return;
    const std::string text = std::to_string(number);
    const int from = static_cast<int>(std::lround(begin)), to = static_cast<int>(std::lround(end));
    if (to - from > static_cast<int>(text.size())) cells.replace(from, text.size(), text);
  });
  return cells;
}

std::string draw_memory(const Timeline& timeline, const Window& window) {
  std::vector<std::int64_t> most(window.columns, 0);
  for (std::size_t i = 0; i < timeline.memory.size(); ++i) {
    const double until = i + 1 < timeline.memory.size() ? timeline.memory[i + 1].time : window.time.end;
    const double begin = std::max(0.0, window.column_of(timeline.memory[i].time));
    const double end = std::min<double>(window.columns, window.column_of(until));
    for (int column = static_cast<int>(begin); column < end; ++column) {
      most[column] = std::max(most[column], timeline.memory[i].bytes);
    }
  }
  std::string cells;
  for (const std::int64_t bytes : most) {
    const double tenths =
        10.0 * static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(1, timeline.peak_bytes));
    cells += static_cast<char>('0' + std::min(9, static_cast<int>(tenths)));
  }
  return cells;
}

std::string milliseconds(double time) {
  char text[32];
  std::snprintf(text, sizeof text, time < 1 ? "%.4g" : "%.0f", time * 1e3);
  return text;
}

int count_rounds(const Program& program) {
  int rounds = 1;
  for (const Instruction& instruction : program.instructions) rounds = std::max(rounds, instruction.round + 1);
  return rounds;
}

// From the first instruction of the round to the last that a unit runs in it.
Span time_of_round(const Program& program, const Timeline& timeline, int round) {
  Span time{timeline.step_s, 0};
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.round != round) continue;
    time.start = std::min(time.start, timeline.spans[i].start);
    if (instruction.unit >= 0) time.end = std::max(time.end, timeline.spans[i].end);
  }
  return time;
}

class Drawing {
 public:
  Drawing(const ChainSpec& chain, const Program& program, const Timeline& timeline, int width)
      : chain_(chain), program_(program), timeline_(timeline), width_(std::max(width, kLeastWidth)) {}

  std::string draw() {
    const int rounds = count_rounds(program_);
    const Span whole{0, timeline_.step_s};
    std::string text = section("step", whole, rounds == 1, true);
    if (rounds > 1) {
      const auto title = [&](int round) {
        return "round " + std::to_string(round + 1) + " of " + std::to_string(rounds);
      };
      text += "\n" + section(title(0), {0, time_of_round(program_, timeline_, 0).end}, true, false);
      const Span last = time_of_round(program_, timeline_, rounds - 1);
      text += "\n" + section(title(rounds - 1) + " and the end", {last.start, timeline_.step_s}, true, false);
    }
    return text + "\n" + legend();
  }

 private:
  std::string section(const std::string& title, const Span& time, bool numbers, bool memory) {
    const Window window{time, width_ - kMargin};
    std::string text = title + ": " + milliseconds(time.start) + " to " + milliseconds(time.end) + " ms";
    const std::string column = ", a column is " + milliseconds(window.column_s()) + " ms";
    if (text.size() + column.size() <= static_cast<std::size_t>(width_)) text += column;
    text += "\n";
    for (const Lane lane : {Lane::compute, Lane::reduce, Lane::copy}) {
      if (lane == Lane::copy && !uses(program_, lane)) continue;
      const std::string cells = draw_lane(program_, timeline_, lane, window);
      for (const char cell : cells) letters_.insert(static_cast<char>(std::toupper(cell)));
      text += row(kLaneNames[static_cast<int>(lane)], cells);
      if (!numbers) continue;
      const std::string below = draw_numbers(program_, timeline_, lane, window);
      const bool is_blank = below.find_first_not_of(' ') == std::string::npos;
      if (!is_blank) text += row(lane == Lane::compute ? "unit" : "group", below);
    }
    if (memory) text += row("memory", draw_memory(timeline_, window));
    return text;
  }

  std::string legend() const {
    std::vector<std::string> words;
    for (const Kind& kind : kKinds) {
      if (letters_.contains(kind.letter)) words.push_back(std::string(1, kind.letter) + " " + kind.name);
    }
    if (letters_.contains(kIdle.letter)) words.push_back(std::string(1, kIdle.letter) + " " + kIdle.name);
    words.push_back("small letter: idle for more than half of the column");
    words.push_back("0-9 tenths of the peak memory");
    return wrap("", words) + wrap("units: ", numbered(chain_.units)) + wrap("groups: ", numbered(chain_.groups));
  }

  // "0 embed", "1 layers.0", ...: the middle of long lists is left out.
  template <class Spec>
  static std::vector<std::string> numbered(const std::vector<Spec>& specs) {
    constexpr std::size_t kFirst = 4, kLast = 3;
    std::vector<std::string> words;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs.size() > kFirst + kLast && i == kFirst) words.push_back("...");
      if (i < kFirst || i + kLast >= specs.size()) words.push_back(std::to_string(i) + " " + specs[i].name);
    }
    return words;
  }

  // Words separated by commas, lines of at most width_ characters; a longer word is cut.
  std::string wrap(const std::string& title, const std::vector<std::string>& words) const {
    std::string text, line = "  " + title;
    const std::string indent(line.size(), ' ');
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
      if (line.size() > indent.size() && line.size() + 1 + word.size() > static_cast<std::size_t>(width_)) {
        text += line + "\n";
        line = indent;
      }
      if (line.size() > indent.size()) line += ' ';
      line += word;
      line.resize(std::min<std::size_t>(line.size(), width_));
    }
    return text + line + "\n";
  }

  const ChainSpec& chain_;
  const Program& program_;
  const Timeline& timeline_;
  const int width_;
  std::set<char> letters_;  // that the drawing has
};

}  // namespace

std::string draw_step(const ChainSpec& chain, const Program& program, const Timeline& timeline, int width) {
  return Drawing(chain, program, timeline, width).draw();
}

}  // namespace trireme::schedule
