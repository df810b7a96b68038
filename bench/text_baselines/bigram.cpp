#include "text_baselines/bigram.h"

#include <cmath>

#include "base/error.h"

namespace trireme::baselines {
namespace {

std::uint64_t key(std::int32_t context, std::int32_t label) {
  return static_cast<std::uint64_t>(context) << 32 | static_cast<std::uint64_t>(label);
}

}  // namespace

Bigram::Bigram(std::int64_t vocabulary)
    : vocabulary_(vocabulary),
      labels_(static_cast<std::size_t>(vocabulary)),
      contexts_(static_cast<std::size_t>(vocabulary)) {}

void Bigram::count(std::int32_t context, std::int32_t label) {
  TRIREME_CHECK(context >= 0 && context < vocabulary_ && label >= 0 && label < vocabulary_, "a token id below V");
  const auto add = [](std::uint64_t& count, Totals& totals) {
    if (count++ == 0) ++totals.types;
    ++totals.count;
  };
  add(labels_[static_cast<std::size_t>(label)], all_);
  add(pairs_[key(context, label)], contexts_[static_cast<std::size_t>(context)]);
}

double Bigram::probability(std::int32_t label) const {
  const double uniform = 1.0 / static_cast<double>(vocabulary_);
  if (all_.count == 0) return uniform;
  const auto types = static_cast<double>(all_.types);
  return (static_cast<double>(labels_.at(static_cast<std::size_t>(label))) + types * uniform) /
         (static_cast<double>(all_.count) + types);
}

double Bigram::probability(std::int32_t context, std::int32_t label) const {
  const Totals& seen = contexts_.at(static_cast<std::size_t>(context));
  if (seen.count == 0) return probability(label);
  const auto pair = pairs_.find(key(context, label));
  const double count = pair == pairs_.end() ? 0 : static_cast<double>(pair->second);
  const auto types = static_cast<double>(seen.types);
  return (count + types * probability(label)) / (static_cast<double>(seen.count) + types);
}

double Bigram::bits(std::int32_t context, std::int32_t label) const {
  return -std::log2(probability(context, label));
}

}  // namespace trireme::baselines
