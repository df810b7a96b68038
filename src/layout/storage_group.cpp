#include "layout/storage_group.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void append(StorageGroup& group, std::span<const ParameterSpec> parameters, int index) {
  const ParameterSpec& parameter = parameters[static_cast<std::size_t>(index)];
  TRIREME_CHECK(parameter.rows > 0 && parameter.columns > 0, "parameter " + parameter.name + " has no elements");
  group.parameters.push_back(index);
  group.offsets.push_back(group.numel);
  group.numel += round_up(parameter.numel(), kGroupAlignment);
}

std::vector<int> count_units(std::size_t num_parameters, std::span<const std::vector<int>> unit_parameters) {
  std::vector<int> units(num_parameters, 0);
  for (const std::vector<int>& listed : unit_parameters) {
    std::vector<int> once = listed;
    std::sort(once.begin(), once.end());
    once.erase(std::unique(once.begin(), once.end()), once.end());
    for (const int index : once) {
      TRIREME_CHECK(index >= 0 && static_cast<std::size_t>(index) < num_parameters, "a unit lists no such parameter");
      ++units[static_cast<std::size_t>(index)];
    }
  }
  return units;
}

std::string class_name(const std::string& unit, const ParameterSpec& parameter) {
  return unit + (parameter.decay ? ".decay" : ".no_decay") + (parameter.trainable ? "" : ".frozen");
}

// The part of one logical tensor in elements [lo, hi) of its parameter's storage matrix. A flat range covers a part of
// its first row, whole rows, and a part of its last row; each is cut to the logical tensor's columns.
class BoxCutter {
 public:
  BoxCutter(std::int64_t storage_columns, std::int64_t lo, std::int64_t hi)
      : columns_(storage_columns),
        first_row_(lo / storage_columns),
        first_column_(lo % storage_columns),
        last_row_(hi / storage_columns),
        end_column_(hi % storage_columns) {}

  std::vector<Box> cut(const Box& box) const {
    std::vector<Box> boxes;
    const bool cut_front = first_column_ > box.column_begin, cut_back = end_column_ < box.column_end;
    const auto add = [&](std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                         std::int64_t column_end) {
      row_begin = std::max(row_begin, box.row_begin);
      row_end = std::min(row_end, box.row_end);
      column_begin = std::max(column_begin, box.column_begin);
      column_end = std::min(column_end, box.column_end);
      if (row_begin < row_end && column_begin < column_end) {
        boxes.push_back({row_begin, row_end, column_begin, column_end});
      }
    };
    if (first_row_ == last_row_) {
      add(first_row_, first_row_ + 1, first_column_, end_column_);
      return boxes;
    }
    if (cut_front) add(first_row_, first_row_ + 1, first_column_, columns_);
    add(first_row_ + (cut_front ? 1 : 0), last_row_ + (cut_back ? 0 : 1), 0, columns_);
    if (cut_back) add(last_row_, last_row_ + 1, 0, end_column_);
    return boxes;
  }

 private:
  std::int64_t columns_, first_row_, first_column_;
  std::int64_t last_row_, end_column_;  // the range ends before this column of this row
};

void check_logical(const ParameterSpec& parameter, const LogicalTensor& tensor) {
  const bool vector = tensor.shape.size() == 1;
  TRIREME_CHECK(vector || tensor.shape.size() == 2, tensor.name + " must have one or two dimensions");
  const Box& box = tensor.box;
  TRIREME_CHECK(box.rows() == (vector ? 1 : tensor.shape[0]) && box.columns() == tensor.shape.back(),
                tensor.name + ": its box has another shape");
  TRIREME_CHECK(box.row_begin >= 0 && box.row_end <= parameter.rows && box.column_begin >= 0 &&
                    box.column_end <= parameter.columns,
                tensor.name + ": its box is outside parameter " + parameter.name);
}

}  // namespace

std::vector<StorageGroup> make_groups(std::span<const ParameterSpec> parameters,
                                      std::span<const std::vector<int>> unit_parameters,
                                      std::span<const std::string> unit_names, int num_slices) {
  TRIREME_CHECK(num_slices >= 1, "a group has at least one slice");
  TRIREME_CHECK(unit_parameters.size() == unit_names.size(), "every unit has a name");
  const std::vector<int> units = count_units(parameters.size(), unit_parameters);
  TRIREME_CHECK(std::find(units.begin(), units.end(), 0) == units.end(), "a parameter is read by no unit");

  std::vector<StorageGroup> groups;
  std::vector<bool> placed(parameters.size(), false);
  for (std::size_t unit = 0; unit < unit_parameters.size(); ++unit) {
    const std::size_t first_of_unit = groups.size();
    for (const int index : unit_parameters[unit]) {
      const auto at = static_cast<std::size_t>(index);
      if (placed[at]) continue;
      placed[at] = true;
      const ParameterSpec& parameter = parameters[at];
      const bool tied = units[at] > 1;
      const std::string name = tied ? parameter.name + ".tied" : class_name(unit_names[unit], parameter);
      auto group = std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(first_of_unit), groups.end(),
                                [&](const StorageGroup& other) { return !tied && other.name == name; });
      if (group == groups.end()) {
        groups.push_back({.name = name, .decay = parameter.decay, .trainable = parameter.trainable});
        group = groups.end() - 1;
      }
      append(*group, parameters, index);
    }
  }
  for (StorageGroup& group : groups) {
    group.num_slices = num_slices;
    group.numel = round_up(group.numel, kGroupAlignment * num_slices);
  }
  return groups;
}

std::vector<Piece> locate(const StorageGroup& group, std::span<const ParameterSpec> parameters, std::int64_t begin,
                          std::int64_t end) {
  TRIREME_CHECK(begin >= 0 && begin <= end && end <= group.numel, "locate: the range is outside group " + group.name);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const ParameterSpec& parameter = parameters[static_cast<std::size_t>(group.parameters[i])];
    const std::int64_t offset = group.offsets[i];
    const std::int64_t lo = std::max(begin - offset, std::int64_t{0});
    const std::int64_t hi = std::min(end - offset, parameter.numel());
    if (lo >= hi) continue;
    const BoxCutter cutter(parameter.columns, lo, hi);
    for (std::size_t logical = 0; logical < parameter.logical.size(); ++logical) {
      const LogicalTensor& tensor = parameter.logical[logical];
      check_logical(parameter, tensor);
      for (const Box& box : cutter.cut(tensor.box)) {
        pieces.push_back({.parameter = group.parameters[i],
                          .logical = static_cast<int>(logical),
                          .box = {box.row_begin - tensor.box.row_begin, box.row_end - tensor.box.row_begin,
                                  box.column_begin - tensor.box.column_begin, box.column_end - tensor.box.column_begin},
                          .flat_begin = offset + box.row_begin * parameter.columns + box.column_begin,
                          .flat_row_stride = parameter.columns});
      }
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.flat_begin < b.flat_begin; });
  return pieces;
}

}  // namespace trireme
