#include "layout/storage_group.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// With what lies between it and the next one.
std::int64_t stored_elements(const ParameterSpec& parameter) {
  return round_up(parameter.numel(), kGroupAlignment);
}

void append(StorageGroup& group, std::span<const ParameterSpec> parameters, int index) {
  const ParameterSpec& parameter = parameters[static_cast<std::size_t>(index)];
  TRIREME_CHECK(parameter.rows > 0 && parameter.columns > 0, "parameter " + parameter.name + " has no elements");
  group.parameters.push_back(index);
  group.offsets.push_back(group.numel);
  group.numel += stored_elements(parameter);
}

// Of each parameter the sets of units that read it.
struct Readers {
  int first = -1, last = -1;
};
std::vector<Readers> find_readers(std::size_t num_parameters, std::span<const std::vector<int>> unit_parameters,
                                  const std::vector<int>& sets) {
  std::vector<Readers> readers(num_parameters);
  for (std::size_t unit = 0; unit < unit_parameters.size(); ++unit) {
    for (const int index : unit_parameters[unit]) {
      TRIREME_CHECK(index >= 0 && static_cast<std::size_t>(index) < num_parameters, "a unit lists no such parameter");
      Readers& of = readers[static_cast<std::size_t>(index)];
      if (of.first < 0) of.first = sets[unit];
      of.last = sets[unit];
    }
  }
  const auto is_read = [](const Readers& of) { return of.first >= 0; };
  TRIREME_CHECK(std::all_of(readers.begin(), readers.end(), is_read), "a parameter is read by no unit");
  return readers;
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

// Places parameter after parameter, in the order in which units list them.
class GroupMaker {
 public:
  GroupMaker(std::span<const ParameterSpec> parameters, std::span<const std::vector<int>> unit_parameters,
             std::span<const std::string> unit_names, const Wrapping& wrapping)
      : parameters_(parameters),
        unit_parameters_(unit_parameters),
        unit_names_(unit_names),
        sets_(wrap_units(wrapping, parameters, unit_parameters, unit_names)),
        readers_(find_readers(parameters.size(), unit_parameters, sets_)),
        bound_(wrapping.max_group_elements > 0 ? wrapping.max_group_elements
                                               : std::numeric_limits<std::int64_t>::max()),
        placed_(parameters.size(), false) {}

  std::vector<StorageGroup> make() {
    for (std::size_t unit = 0; unit < unit_parameters_.size(); ++unit) {
      if (unit == 0 || sets_[unit] != sets_[unit - 1]) {
        set_name_ = unit_names_[unit];
        open_.clear();
      }
      add_unit(unit_parameters_[unit]);
    }
    return std::move(groups_);
  }

 private:
  struct Open {
    std::string name;  // of the class
    std::size_t group = 0;
    int count = 1;  // groups of that class in this set
  };

  bool is_tied(int index) const {
    const Readers& of = readers_[static_cast<std::size_t>(index)];
    return of.first != of.last;
  }

  void add_unit(const std::vector<int>& listed) {
    std::vector<std::string> begun;  // classes of which this unit has placed something
    for (const int index : listed) {
      const ParameterSpec& parameter = parameters_[static_cast<std::size_t>(index)];
      if (placed_[static_cast<std::size_t>(index)]) continue;
      if (is_tied(index)) {
        add_group(parameter.name + ".tied", parameter);
        place(groups_.size() - 1, index);
        continue;
      }
      const std::string name = class_name(set_name_, parameter);
      const bool first = std::find(begun.begin(), begun.end(), name) == begun.end();
      if (first) begun.push_back(name);
      const std::int64_t part = first ? elements_left(listed, name) : 0;
      place(group_for(name, parameter, part), index);
    }
  }

  // What the unit has of a class that is not placed yet.
  std::int64_t elements_left(const std::vector<int>& listed, const std::string& name) const {
    std::vector<int> counted;
    std::int64_t elements = 0;
    for (const int index : listed) {
      const ParameterSpec& parameter = parameters_[static_cast<std::size_t>(index)];
      const bool twice = std::find(counted.begin(), counted.end(), index) != counted.end();
      if (twice || placed_[static_cast<std::size_t>(index)] || is_tied(index)) continue;
      if (class_name(set_name_, parameter) != name) continue;
      counted.push_back(index);
      elements += stored_elements(parameter);
    }
    return elements;
  }

  // part: elements that should lie together with this parameter, itself among them.
  std::size_t group_for(const std::string& name, const ParameterSpec& parameter, std::int64_t part) {
    auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& other) { return other.name == name; });
    if (open == open_.end()) {
      add_group(name, parameter);
      open_.push_back({name, groups_.size() - 1});
      return groups_.size() - 1;
    }
    const std::int64_t room = bound_ - groups_[open->group].numel;
    if (stored_elements(parameter) > room || (part > room && part <= bound_)) {
      add_group(name + "." + std::to_string(++open->count), parameter);
      open->group = groups_.size() - 1;
    }
    return open->group;
  }

  void add_group(const std::string& name, const ParameterSpec& parameter) {
    groups_.push_back({.name = name, .decay = parameter.decay, .trainable = parameter.trainable});
  }

  void place(std::size_t group, int index) {
    append(groups_[group], parameters_, index);
    placed_[static_cast<std::size_t>(index)] = true;
  }

  std::span<const ParameterSpec> parameters_;
  std::span<const std::vector<int>> unit_parameters_;
  std::span<const std::string> unit_names_;
  const std::vector<int> sets_;
  const std::vector<Readers> readers_;
  const std::int64_t bound_;
  std::vector<bool> placed_;
  std::vector<StorageGroup> groups_;
  std::string set_name_;
  std::vector<Open> open_;  // of the set in hand: where its classes go on
};

}  // namespace

std::vector<StorageGroup> make_groups(std::span<const ParameterSpec> parameters,
                                      std::span<const std::vector<int>> unit_parameters,
                                      std::span<const std::string> unit_names, int num_slices,
                                      const Wrapping& wrapping) {
  TRIREME_CHECK(num_slices >= 1, "a group has at least one slice");
  TRIREME_CHECK(unit_parameters.size() == unit_names.size(), "every unit has a name");
  std::vector<StorageGroup> groups = GroupMaker(parameters, unit_parameters, unit_names, wrapping).make();
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
