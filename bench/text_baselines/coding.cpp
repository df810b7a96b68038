#include "text_baselines/coding.h"

#include <vector>

#include "text_baselines/bigram.h"

namespace trireme::baselines {
namespace {

// Hands each (context, label) of a sample to take.
template <class Take>
void for_each_label(const data::Dataset& dataset, std::uint64_t sample, const Take& take) {
  const auto length = static_cast<std::size_t>(dataset.sequence_length());
  std::vector<std::int32_t> rows(4 * length);
  std::int32_t* ids = rows.data();
  dataset.read(sample, {ids, ids + length, ids + 2 * length, ids + 3 * length});
  for (std::size_t t = 0; t < length; ++t) {
    const std::int32_t label = rows[length + t];
    if (label >= 0) take(ids[t], label);
  }
}

}  // namespace

Coded code_by_bigram(const data::Dataset& train, const data::SampleOrder& order, std::uint64_t num_positions,
                     const data::Dataset& heldout) {
  Bigram bigram(train.vocabulary());
  for (std::uint64_t position = 0; position < num_positions; ++position) {
    for_each_label(train, order.sample(position), [&](auto context, auto label) { bigram.count(context, label); });
  }
  Coded coded;
  for (std::uint64_t sample = 0; sample < heldout.num_samples(); ++sample) {
    for_each_label(heldout, sample, [&](auto context, auto label) {
      coded.bits += bigram.bits(context, label);
      ++coded.tokens;
    });
  }
  return coded;
}

}  // namespace trireme::baselines
