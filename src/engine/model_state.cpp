#include "engine/model_state.h"

#include <algorithm>
#include <cstring>

#include "base/cpu.h"
#include "base/random.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme::engine {

using schedule::BufferKind;

ModelState::ModelState(const Chain& chain, const std::vector<StorageGroup>& groups, const schedule::ChainSpec& spec,
                       const schedule::Program& program, const optim::OptimizerOptions& optimizer, int slice,
                       const StateTypes& types, MemoryKind device_memory, MemoryKind host_memory)
    : chain_(chain),
      groups_(groups),
      spec_(spec),
      slice_(slice),
      types_(types),
      names_(optim::optimizer_of(optimizer).state),
      device_(program.persistent_bytes, device_memory),
      host_(program.host_persistent_bytes, host_memory),
      places_(groups.size(), Place{}),
      parameter_places_(chain.parameters.size()) {
  for (std::size_t i = 0; i <= names_.size(); ++i) kinds_.push_back(static_cast<StateKind>(i));
  for (const schedule::Buffer& buffer : program.buffers) {
    if (buffer.group < 0 || !schedule::is_persistent(buffer.kind)) continue;
    Place& place = places_[buffer.group];
    std::byte* data = memory(buffer.tier).at(buffer.offset);
    const std::int64_t numel = updated(buffer.group).size();
    if (buffer.kind == BufferKind::weights || buffer.kind == BufferKind::weight_slice) {
      place.weights = data;
      if (weights_are_master(buffer.group)) place.master = data;
    } else if (buffer.kind == BufferKind::state) {
      if (!weights_are_master(buffer.group)) {
        place.master = data;
        data += numel * size_of(types.master);
      }
      if (!names_.empty()) place.first = data;
      if (names_.size() > 1) place.second = data + numel * size_of(types.moment);
    } else if (buffer.kind == BufferKind::accumulator) {
      place.accumulator = data;
    } else if (buffer.kind == BufferKind::sum_copy) {
      place.sum_copy = data;
    } else if (buffer.kind == BufferKind::snapshot) {
      place.snapshot = data;
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].parameters.size(); ++i) {
      parameter_places_[groups[g].parameters[i]] = {static_cast<int>(g), groups[g].offsets[i]};
    }
  }
  if (const double value = optim::initial_state(optimizer); value != 0) {
    fill_optimizer_state(static_cast<float>(value));
  }
}

void ModelState::fill_optimizer_state(float value) const {
  for (std::size_t i = 1; i < kinds_.size(); ++i) {
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
      write(kinds_[i], g, std::vector<float>(static_cast<std::size_t>(held(kinds_[i], g).size()), value));
    }
  }
}

std::string ModelState::prefix_of(StateKind kind) const {
  if (kind == StateKind::master) return {};
  return std::string(names_[static_cast<std::size_t>(kind) - 1]) + "/";
}

Range ModelState::updated(int group) const {
  return spec_.groups[group].shards_optimizer ? slice_of(group) : Range{0, groups_[group].numel};
}

Range ModelState::held(StateKind kind, int group) const {
  const schedule::GroupSpec& spec = spec_.groups[group];
  if (kind != StateKind::master) return spec.trainable ? updated(group) : Range{};
  if (!weights_are_master(group) && spec.trainable) return updated(group);
  return spec.shards_parameters ? slice_of(group) : Range{0, groups_[group].numel};
}

// Of trainable groups as Options::has_own_master() plans it.
bool ModelState::weights_are_master(int group) const {
  const schedule::GroupSpec& spec = spec_.groups[group];
  return !spec.trainable || (chain_.compute_dtype == types_.master && (!spec.state_on_host || spec.weights_on_host));
}

DType ModelState::dtype_of(StateKind kind, int group) const {
  if (kind != StateKind::master) return types_.moment;
  return weights_are_master(group) ? chain_.compute_dtype : types_.master;
}

Range ModelState::slice_of(int group) const {
  const std::int64_t numel = groups_[group].slice_numel();
  return {slice_ * numel, (slice_ + 1) * numel};
}

std::byte* ModelState::data(StateKind kind, int group) const {
  const Place& place = places_[group];
  switch (kind) {
    case StateKind::master: return place.master;
    case StateKind::first: return place.first;
    case StateKind::second: return place.second;
  }
  return nullptr;
}

bool ModelState::is_copied(StateKind kind, int group) const {
  return is_on_device() || dtype_of(kind, group) != DType::f32;
}

std::span<const float> ModelState::read(StateKind kind, int group, std::vector<float>& storage) const {
  const auto numel = static_cast<std::size_t>(held(kind, group).size());
  if (!is_copied(kind, group)) return {reinterpret_cast<const float*>(data(kind, group)), numel};
  storage.resize(numel);
  if (numel == 0) return storage;
  dispatch(dtype_of(kind, group), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>) {
      copy_between(storage.data(), data(kind, group), numel * sizeof(float));
    } else {
      std::vector<T> narrow(numel);
      copy_between(narrow.data(), data(kind, group), numel * sizeof(T));
      kernels::table<T>().cast_to_float(static_cast<std::int64_t>(numel), narrow.data(), storage.data());
    }
  });
  return storage;
}

const std::byte* ModelState::read_sums(int group, std::vector<std::byte>& storage) const {
  if (!is_on_device()) return updated_accumulator(group);
  storage.resize(static_cast<std::size_t>(updated(group).size() * size_of(accumulator_dtype())));
  copy_between(storage.data(), updated_accumulator(group), storage.size());
  return storage.data();
}

void ModelState::write(StateKind kind, int group, std::span<const float> values) const {
  if (values.empty()) return;
  dispatch(dtype_of(kind, group), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>) {
      copy_between(data(kind, group), values.data(), values.size_bytes());
    } else {
      std::vector<T> narrow(values.size());
      kernels::table<T>().cast_from_float(std::ssize(values), values.data(), narrow.data());
      copy_between(data(kind, group), narrow.data(), narrow.size() * sizeof(T));
    }
  });
}

// Between host and where the state lies, at once.
void ModelState::copy_between(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  if (is_on_device()) return kernels::copy_now(to, from, static_cast<std::int64_t>(bytes));
  std::memcpy(to, from, bytes);
}

std::byte* ModelState::updated_data(StateKind kind, int group) const {
  std::byte* first = data(kind, group);
  const std::int64_t before = updated(group).begin - held(kind, group).begin;
  return first == nullptr ? nullptr : first + before * size_of(dtype_of(kind, group));
}

void ModelState::take_snapshot(int group) const {
  const Range slice = slice_of(group);
  std::byte* target = places_[group].snapshot;
  for (const StateKind kind : kinds_) {
    const std::int64_t element = size_of(dtype_of(kind, group)), bytes = slice.size() * element;
    kernels::copy(target, data(kind, group) + (slice.begin - held(kind, group).begin) * element, bytes);
    target += bytes;
  }
}

const std::byte* ModelState::snapshot(StateKind kind, int group) const {
  const std::byte* place = places_[group].snapshot;
  if (place == nullptr) return nullptr;
  for (const StateKind before : kinds_) {
    if (before == kind) break;
    place += slice_of(group).size() * size_of(dtype_of(before, group));
  }
  return place;
}

std::byte* ModelState::updated_accumulator(int group) const {
  const std::int64_t begin = spec_.groups[group].shards_gradients ? 0 : updated(group).begin;
  return accumulator(group) + begin * size_of(accumulator_dtype());
}

std::byte* ModelState::updated_weights(int group) const {
  const std::int64_t begin = spec_.groups[group].shards_parameters ? 0 : updated(group).begin;
  return weights(group) + begin * size_of(chain_.compute_dtype);
}

Tensor ModelState::view(int parameter, std::byte* weights) const {
  const ParameterSpec& spec = chain_.parameters[parameter];
  std::byte* data = weights + place(parameter).offset * size_of(chain_.compute_dtype);
  return {data, chain_.compute_dtype, {spec.rows, spec.columns}};
}

// By the device, wherever the masters are: those in pinned memory are written through the bus.
void ModelState::initialize_on_device(std::uint64_t seed) const {
  const kernels::Stream stream;
  const kernels::OnStream on(stream);
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    const Range range = held(StateKind::master, g);
    std::byte* master = data(StateKind::master, g);
    const DType dtype = dtype_of(StateKind::master, g);
    for (const Piece& piece : locate(groups_[g], chain_.parameters, range.begin, range.end)) {
      const ParameterSpec& parameter = chain_.parameters[piece.parameter];
      const LogicalTensor& tensor = parameter.logical[piece.logical];
      const Box& box = piece.box;
      kernels::fill_normal_rows(
          {.seed = seed,
           .stream = stream_id("init/" + tensor.name),
           .first = static_cast<std::uint64_t>(box.row_begin * tensor.box.columns() + box.column_begin),
           .rows = box.rows(),
           .columns = box.columns(),
           .pitch = tensor.box.columns(),
           .stride = piece.flat_row_stride,
           .mean = parameter.init == Init::ones ? 1.0 : 0.0,
           .scale = parameter.init == Init::normal ? parameter.init_std : 0.0},
          dtype, master + (piece.flat_begin - range.begin) * size_of(dtype));
    }
  }
  stream.synchronize();
}

void ModelState::initialize(std::uint64_t seed) {
  if (is_on_device()) return initialize_on_device(seed);
  const auto draw = [&](const HeldPiece& piece) {
    constexpr std::int64_t kWorthAThread = 1 << 17;  // elements
    const Box& box = piece.box;
    const std::uint64_t stream = stream_id("init/" + piece.tensor.name);
    in_parallel(box.rows(), 1 + kWorthAThread / box.columns(), [&](std::int64_t begin, std::int64_t end) {
      float* out = piece.data + begin * piece.row_stride;
      for (std::int64_t row = box.row_begin + begin; row < box.row_begin + end; ++row, out += piece.row_stride) {
        const auto count = static_cast<std::size_t>(box.columns());
        if (piece.parameter.init == Init::normal) {
          const auto first = static_cast<std::uint64_t>(row * piece.tensor.box.columns() + box.column_begin);
          fill_normal(seed, stream, first, piece.parameter.init_std, {out, count});
        } else {
          std::fill_n(out, count, piece.parameter.init == Init::ones ? 1.0f : 0.0f);
        }
      }
    });
  };
  for_each_piece(StateKind::master, draw);
}

void ModelState::cast_weights(int group) {
  write_weights(group, updated_weights(group));
}

void ModelState::write_weights(int group, std::byte* target) const {
  if (weights_are_master(group)) return;
  const std::byte* master = updated_data(StateKind::master, group);
  const std::int64_t numel = updated(group).size();
  if (types_.master == chain_.compute_dtype) return kernels::copy(target, master, numel * size_of(types_.master));
  dispatch(chain_.compute_dtype, [&]<class T>(T) {
    kernels::table<T>().cast_from_float(numel, reinterpret_cast<const float*>(master), reinterpret_cast<T*>(target));
  });
}

void ModelState::for_each_piece(const std::function<void(const HeldPiece&)>& visit) const {
  for (const StateKind kind : kinds_) for_each_piece(kind, visit);
}

void ModelState::for_each_piece(StateKind kind, const std::function<void(const HeldPiece&)>& visit) const {
  std::vector<float> copy;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    const Range range = held(kind, g);
    const bool is_copy = is_copied(kind, g);
    if (is_copy) read(kind, g, copy);
    float* first = is_copy ? copy.data() : reinterpret_cast<float*>(data(kind, g));
    for (const Piece& piece : locate(groups_[g], chain_.parameters, range.begin, range.end)) {
      const ParameterSpec& parameter = chain_.parameters[piece.parameter];
      visit({kind, parameter, parameter.logical[piece.logical], piece.box, first + (piece.flat_begin - range.begin),
             piece.flat_row_stride});
    }
    if (is_copy) write(kind, g, copy);
  }
}

}  // namespace trireme::engine
