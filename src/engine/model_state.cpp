#include "engine/model_state.h"

#include <algorithm>

#include "base/random.h"
#include "kernels/kernels.h"

namespace trireme::engine {

using schedule::BufferKind;

ModelState::ModelState(const Chain& chain, const std::vector<StorageGroup>& groups, const schedule::Program& program)
    : chain_(chain),
      groups_(groups),
      memory_(program.persistent_bytes),
      places_(groups.size(), Place{}),
      parameter_places_(chain.parameters.size()) {
  const bool weights_are_master = chain.compute_dtype == DType::f32;
  for (const schedule::Buffer& buffer : program.buffers) {
    if (buffer.group < 0 || !schedule::is_persistent(buffer.kind)) continue;
    Place& place = places_[buffer.group];
    std::byte* data = memory_.at(buffer.offset);
    const std::int64_t numel = groups[buffer.group].numel;
    if (buffer.kind == BufferKind::weights) {
      place.weights = data;
      if (weights_are_master) place.master = reinterpret_cast<float*>(data);
    } else if (buffer.kind == BufferKind::state) {
      auto* state = reinterpret_cast<float*>(data);
      if (!weights_are_master) {
        place.master = state;
        state += numel;
      }
      place.first_moment = state;
      place.second_moment = state + numel;
    } else if (buffer.kind == BufferKind::accumulator) {
      place.accumulator = reinterpret_cast<float*>(data);
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].parameters.size(); ++i) {
      parameter_places_[groups[g].parameters[i]] = {static_cast<int>(g), groups[g].offsets[i]};
    }
  }
}

Tensor ModelState::weight_view(int parameter) const {
  const ParameterSpec& spec = chain_.parameters[parameter];
  const ParameterPlace& where = place(parameter);
  auto* base = static_cast<std::byte*>(weights(where.group));
  return {base + where.offset * size_of(chain_.compute_dtype), chain_.compute_dtype, {spec.rows, spec.columns}};
}

void ModelState::initialize(std::uint64_t seed) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Piece& piece : locate(groups_[g], chain_.parameters, 0, groups_[g].numel)) {
      const ParameterSpec& spec = chain_.parameters[piece.parameter];
      const LogicalTensor& tensor = spec.logical[piece.logical];
      const std::uint64_t stream = stream_id("init/" + tensor.name);
      const std::int64_t columns = tensor.box.columns();
      for (std::int64_t row = piece.box.row_begin; row < piece.box.row_end; ++row) {
        float* out =
            master(static_cast<int>(g)) + piece.flat_begin + (row - piece.box.row_begin) * piece.flat_row_stride;
        const auto count = static_cast<std::size_t>(piece.box.column_end - piece.box.column_begin);
        if (spec.init == Init::normal) {
          const auto first = static_cast<std::uint64_t>(row * columns + piece.box.column_begin);
          fill_normal(seed, stream, first, spec.init_std, {out, count});
        } else {
          std::fill_n(out, count, spec.init == Init::ones ? 1.0f : 0.0f);
        }
      }
    }
  }
  refresh_weights();
}

void ModelState::refresh_weights() {
  if (chain_.compute_dtype == DType::f32) return;
  TRIREME_CHECK(chain_.compute_dtype == DType::bf16, "compute dtype is fp32 or bf16");
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    kernels::table<bfloat16>().cast_from_float(groups_[g].numel, master(static_cast<int>(g)),
                                               static_cast<bfloat16*>(weights(static_cast<int>(g))));
  }
}

void ModelState::for_each_logical(const Visitor& visit) const {
  const auto visit_all = [&](const std::string& prefix, auto data_of) {
    for (std::size_t p = 0; p < chain_.parameters.size(); ++p) {
      const ParameterSpec& spec = chain_.parameters[p];
      if (!spec.trainable && !prefix.empty()) continue;
      for (const LogicalTensor& tensor : spec.logical) {
        const std::int64_t first = tensor.box.row_begin * spec.columns + tensor.box.column_begin;
        visit(prefix, tensor, data_of(parameter_places_[p].group) + parameter_places_[p].offset + first, spec.columns);
      }
    }
  };
  visit_all("", [this](int g) { return master(g); });
  visit_all("exp_avg/", [this](int g) { return first_moment(g); });
  visit_all("exp_avg_sq/", [this](int g) { return second_moment(g); });
}

}  // namespace trireme::engine
