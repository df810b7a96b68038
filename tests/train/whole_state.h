// The logical tensors of all ranks, put together from what each holds.
#pragma once
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "engine/model_state.h"

namespace trireme::testing {

class WholeState {
 public:
  void add(const engine::ModelState& state) {
    state.for_each_piece([&](const engine::ModelState::HeldPiece& piece) {
      const std::string name = state.prefix_of(piece.kind) + piece.tensor.name;
      Elements& tensor = tensors_[{piece.kind, name}];
      tensor.resize(static_cast<std::size_t>(piece.tensor.box.numel()));
      for (std::int64_t row = piece.box.row_begin; row < piece.box.row_end; ++row) {
        for (std::int64_t column = piece.box.column_begin; column < piece.box.column_end; ++column) {
          std::optional<float>& element = tensor[static_cast<std::size_t>(row * piece.tensor.box.columns() + column)];
          const float value =
              piece.data[(row - piece.box.row_begin) * piece.row_stride + column - piece.box.column_begin];
          equal_ =
              equal_ && (!element || std::bit_cast<std::uint32_t>(*element) == std::bit_cast<std::uint32_t>(value));
          element = value;
        }
      }
    });
  }
  // Whether what several ranks hold has the same bits on all.
  bool equal() const { return equal_; }

  // By kind and name. Throws where an element is on no rank.
  std::string digest() const {
    Digest digest;
    for (const auto& [name, tensor] : tensors_) {
      for (const std::optional<float>& element : tensor) {
        digest.add(std::as_bytes(std::span(&element.value(), 1)));
      }
    }
    return digest.hex();
  }

 private:
  using Elements = std::vector<std::optional<float>>;
  std::map<std::pair<engine::StateKind, std::string>, Elements> tensors_;
  bool equal_ = true;
};

}  // namespace trireme::testing
