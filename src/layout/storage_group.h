// Storage groups: what is stored, gathered and reduced as one flat run, and the index function that maps a flat range
// back to logical tensors. Serves init, save, load, clip and export; knows no tensors.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/parameter.h"
#include "layout/wrapping.h"

namespace trireme {

inline constexpr std::int64_t kGroupAlignment = 256;  // elements: offsets and slices are multiples of it in every dtype

// Parameters of equal trainability and decay class, one after the other, each at a multiple of kGroupAlignment
// elements, the whole padded so that num_slices equal slices are multiples of kGroupAlignment too.
struct StorageGroup {
  std::string name;
  bool decay = true, trainable = true;
  std::vector<int> parameters;        // indices into the model's parameter list
  std::vector<std::int64_t> offsets;  // element offset of each parameter in the group
  std::int64_t numel = 0;             // padded
  int num_slices = 1;
  std::int64_t slice_numel() const { return numel / num_slices; }
};

// One group per set of units (wrapping.h) and (decay, trainable) class, and more where one would have more than
// wrapping.max_group_elements: then a unit's part begins a new one, if it fits into one, and no parameter is cut. A
// parameter that units of several sets list (a tied one) is a group of its own, placed where it is first listed.
// unit_parameters[u] are the indices that unit u reads; groups are called "UNIT.decay", "UNIT.no_decay" (".frozen"
// behind it where not trainable, ".2" and so on where there are several) by the first unit of the set, and
// "PARAMETER.tied". A parameter that no unit reads is TR1000.
std::vector<StorageGroup> make_groups(std::span<const ParameterSpec> parameters,
                                      std::span<const std::vector<int>> unit_parameters,
                                      std::span<const std::string> unit_names, int num_slices,
                                      const Wrapping& wrapping = {});

// Flat elements [begin, end) of a group that lie in one logical tensor as one box of it.
struct Piece {
  int parameter = 0;             // index into the model's parameter list
  int logical = 0;               // index into that parameter's logical tensors
  Box box;                       // in the logical tensor's own rows and columns (a vector is one row)
  std::int64_t flat_begin = 0;   // flat element of the group that holds the box's first element
  std::int64_t flat_row_stride;  // distance in the group between the box's rows (the storage matrix's columns)
};

// All logical elements of flat range [begin, end), in order of flat_begin; padding is left out. Every logical element
// of the range is in exactly one piece. Throws TR1000 when the range is outside the group.
std::vector<Piece> locate(const StorageGroup& group, std::span<const ParameterSpec> parameters, std::int64_t begin,
                          std::int64_t end);

}  // namespace trireme
