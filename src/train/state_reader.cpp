#include "train/state_reader.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/element_cast.h"

namespace trireme::train {

StateReader::StateReader(engine::Engine& engine, const Chain& chain)
    : StateReader(engine, engine.state(), nullptr, chain) {}

StateReader::StateReader(engine::Engine& engine, const engine::Snapshot& snapshot, const Chain& chain)
    : StateReader(engine, snapshot.layout(), &snapshot, chain) {}

StateReader::StateReader(engine::Engine& engine, const engine::ModelState& layout, const engine::Snapshot* snapshot,
                         const Chain& chain)
    : engine_(engine), layout_(layout), snapshot_(snapshot), chain_(chain) {
  for (const engine::StateKind kind : layout.kinds()) {
    for (int group = 0; group < static_cast<int>(engine.plan().groups.size()); ++group) {
      if (kind == engine::StateKind::master || engine.plan().groups[group].trainable) turns_.emplace_back(kind, group);
    }
  }
}

std::vector<checkpoint::NamedData> StateReader::tensors() {
  std::vector<checkpoint::NamedData> list;
  for (std::size_t turn = 0; turn < turns_.size(); ++turn) {
    const auto [kind, group] = turns_[turn];
    for (const int parameter : engine_.plan().groups[group].parameters) {
      for (const LogicalTensor& tensor : chain_.parameters[parameter].logical) {
        const DType dtype = layout_.dtype_of(kind, group);
        list.push_back({layout_.prefix_of(kind) + tensor.name, dtype, tensor.shape, {}, [=, this, &tensor] {
                          return read(turn, parameter, tensor);
                        }});
      }
    }
  }
  return list;
}

void StateReader::read_the_rest() {
  while (next_ < turns_.size()) next();
}

void StateReader::next() {
  const auto [kind, group] = turns_[next_++];
  group_ = snapshot_ == nullptr ? engine_.gather_state(kind, group, gathered_)
                                : engine_.gather_state(*snapshot_, kind, group, gathered_);
}

std::span<const std::byte> StateReader::read(std::size_t turn, int parameter, const LogicalTensor& tensor) {
  while (next_ <= turn) next();
  TRIREME_CHECK(next_ == turn + 1, "the state is read in order");
  const std::int64_t columns = chain_.parameters[parameter].columns;
  const Box& box = tensor.box;
  const std::int64_t first = layout_.place(parameter).offset + box.row_begin * columns + box.column_begin;
  const float* data = group_.data() + first;
  const auto numel = static_cast<std::size_t>(box.numel());
  if (box.rows() > 1 && box.columns() < columns) {
    rows_.resize(numel);
    for (std::int64_t row = 0; row < box.rows(); ++row) {
      std::copy_n(data + row * columns, box.columns(), rows_.data() + row * box.columns());
    }
    data = rows_.data();
  }
  const auto [kind, group] = turns_[turn];
  const DType dtype = layout_.dtype_of(kind, group);
  if (dtype == DType::f32) return std::as_bytes(std::span(data, numel));
  narrow_.resize(numel * static_cast<std::size_t>(size_of(dtype)));
  checkpoint::from_float(dtype, data, box.numel(), narrow_.data());
  return narrow_;
}

}  // namespace trireme::train
