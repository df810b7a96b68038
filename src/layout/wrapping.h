// Which neighbouring units put their parameters into storage groups together. Storage only: what is gathered, reduced
// and kept as one run; units and what they compute stay as they are.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/parameter.h"

namespace trireme {

// transformer: each unit by itself, so the embedding, every block and the head. size: neighbours until they have
// min_elements; what is left at the end joins the last set. by_name: a set begins at each unit whose name matches one
// of `names`. none: all units.
enum class WrapPolicy : std::uint8_t { transformer, size, by_name, none };

struct Wrapping {
  WrapPolicy policy = WrapPolicy::transformer;
  std::int64_t min_elements = 0;
  std::vector<std::string> names;       // with * ? [...] as in a shell; * takes dots too
  std::int64_t max_group_elements = 0;  // of every policy: a group of more has one parameter; 0: no bound
};

// Of each unit the number of its set, from 0 on without gaps. A parameter counts where it is first read. Throws Error
// TR2290 where a name matches no unit.
std::vector<int> wrap_units(const Wrapping& wrapping, std::span<const ParameterSpec> parameters,
                            std::span<const std::vector<int>> unit_parameters, std::span<const std::string> unit_names);

}  // namespace trireme
