#include "train/freeze.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "models/model.h"

namespace trireme::train {

namespace {

constexpr const char* kPlace = "training.freeze";

// The names that any pattern matches.
std::set<std::string> find_frozen(const Chain& chain, const std::vector<std::string>& patterns) {
  std::set<std::string> frozen;
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (const ParameterSpec& parameter : chain.parameters) {
      for (const LogicalTensor& tensor : parameter.logical) {
        if (fnmatch(pattern.c_str(), tensor.name.c_str(), 0) != 0) continue;
        frozen.insert(tensor.name);
        matches = true;
      }
    }
    if (!matches) {
      throw Error(2291, kPlace, pattern + " matches no tensor of the model",
                  "names are such as " + chain.parameters.front().logical.front().name + " and " +
                      chain.parameters.back().logical.front().name + "; a * stands for any part");
    }
  }
  return frozen;
}

void check_stored_together(const ParameterSpec& parameter, const std::set<std::string>& frozen) {
  const auto is_frozen = [&](const LogicalTensor& tensor) { return frozen.contains(tensor.name); };
  const auto first = std::find_if(parameter.logical.begin(), parameter.logical.end(), is_frozen);
  const auto other = std::find_if_not(parameter.logical.begin(), parameter.logical.end(), is_frozen);
  if (first == parameter.logical.end() || other == parameter.logical.end()) return;
  throw Error(2292, kPlace, "freezes " + first->name + ", but not " + other->name + ", which is stored with it",
              "freeze both or neither: they are one matrix");
}

}  // namespace

Chain make_training_chain(const ResolvedRun& run, std::vector<std::string>& notices) {
  Chain chain = make_chain(run.model, run.compute_dtype, run.recompute_wide);
  if (run.freeze.empty()) return chain;
  const std::set<std::string> frozen = find_frozen(chain, run.freeze);
  std::int64_t elements = 0;
  std::size_t tensors = 0;
  for (ParameterSpec& parameter : chain.parameters) {
    check_stored_together(parameter, frozen);
    parameter.trainable = parameter.logical.empty() || !frozen.contains(parameter.logical.front().name);
    tensors += parameter.logical.size();
    for (const LogicalTensor& tensor : parameter.logical) elements += parameter.trainable ? 0 : tensor.box.numel();
  }
  if (frozen.size() == tensors) {
    throw Error(2291, kPlace, "freezes all " + std::to_string(tensors) + " tensors of the model",
                "leave something to train");
  }
  notices.push_back(fmt::format("training.freeze: {} of {} tensors, {} of {} parameters, are not trained",
                                frozen.size(), tensors, elements, chain.num_parameters()));
  return chain;
}

void check_frozen(const checkpoint::Manifest& manifest, const Chain& chain, const engine::ModelState& state) {
  if (state.kinds().size() == 1) return;  // the optimizer has none
  const std::string prefix = state.prefix_of(state.kinds()[1]);
  std::set<std::string> saved;
  for (const auto& tensor : manifest.tensors) saved.insert(tensor.name);
  for (const ParameterSpec& parameter : chain.parameters) {
    for (const LogicalTensor& tensor : parameter.logical) {
      // A tensor that is not there at all is another model's, which load() says.
      if (!saved.contains(tensor.name) || saved.contains(prefix + tensor.name) == parameter.trainable) continue;
      throw Error(2224, kPlace,
                  parameter.trainable ? tensor.name +
                                            " is trained, but was frozen when the checkpoint was made: it has "
                                            "no optimizer state"
                                      : "freezes " + tensor.name + ", but the checkpoint to resume from trained it",
                  "a run keeps what it trains: set it back, or start a new run from the exported model "
                  "(trireme convert)");
    }
  }
}

}  // namespace trireme::train
