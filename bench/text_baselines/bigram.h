// A table of token pairs as a language model: the simplest one that a trained model has to beat.
//
// Witten-Bell smoothing (Witten and Bell 1991), each order falling back on the one below:
//   P(w | h) = (count(h w) + types(h) P(w)) / (count(h) + types(h)),  P(w) where h was never seen
//   P(w)     = (count(w) + types / V) / (count + types),              1 / V where nothing was seen
// types(h): the number of different tokens seen after h; types: the number of different tokens seen.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace trireme::baselines {

class Bigram {
 public:
  explicit Bigram(std::int64_t vocabulary);
  // Both in 0 .. V-1. The label counts towards the unigram.
  void count(std::int32_t context, std::int32_t label);
  double bits(std::int32_t context, std::int32_t label) const;  // -log2 P(label | context)
  double probability(std::int32_t label) const;
  double probability(std::int32_t context, std::int32_t label) const;

 private:
  struct Totals {
    std::uint64_t count = 0, types = 0;
  };
  std::int64_t vocabulary_;
  Totals all_;
  std::vector<std::uint64_t> labels_;
  std::vector<Totals> contexts_;
  std::unordered_map<std::uint64_t, std::uint64_t> pairs_;
};

}  // namespace trireme::baselines
