// A rank's persistent numbers: weights, optimizer state and gradient sums by storage group, and the map between them
// and logical tensors.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "engine/memory.h"
#include "layout/storage_group.h"
#include "schedule/schedule.h"

namespace trireme::engine {

// Where a parameter lives.
struct ParameterPlace {
  int group = -1;
  std::int64_t offset = 0;  // elements
};

class ModelState {
 public:
  // Allocates what `program` plans as persistent. chain and groups must outlive this.
  ModelState(const Chain& chain, const std::vector<StorageGroup>& groups, const schedule::Program& program);

  // fp32, numel of the group each. weights() is what units read: the master itself in fp32 compute.
  float* master(int group) const { return places_[group].master; }
  float* first_moment(int group) const { return places_[group].first_moment; }
  float* second_moment(int group) const { return places_[group].second_moment; }
  float* accumulator(int group) const { return places_[group].accumulator; }
  void* weights(int group) const { return places_[group].weights; }
  const ParameterPlace& place(int parameter) const { return parameter_places_[parameter]; }
  Tensor weight_view(int parameter) const;

  // Element i of logical tensor n is normal(seed, "init/n", i) * init_std, or 0 or 1: the same under every layout.
  // Moments are zero.
  void initialize(std::uint64_t seed);
  // Units' copies from the masters; after initialize() or a load.
  void refresh_weights();

  // Calls visit(prefix, tensor, data, row_stride) for each logical tensor of the weights ("") and moments ("exp_avg/",
  // "exp_avg_sq/"): data is the first element of its box inside the group.
  using Visitor =
      std::function<void(const std::string& prefix, const LogicalTensor& tensor, float* data, std::int64_t row_stride)>;
  void for_each_logical(const Visitor& visit) const;

 private:
  struct Place {
    float *master, *first_moment, *second_moment, *accumulator;
    void* weights;
  };
  const Chain& chain_;
  const std::vector<StorageGroup>& groups_;
  Memory memory_;
  std::vector<Place> places_;
  std::vector<ParameterPlace> parameter_places_;
};

}  // namespace trireme::engine
