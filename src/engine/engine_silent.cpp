// Silent steps: all that a rank computes in one, with what it has alone in place of what ranks tell each other.
#include <algorithm>

#include "base/random.h"
#include "engine/engine.h"
#include "engine/gradient_sum.h"
#include "kernels/device.h"
#include "layout/dispatch.h"

namespace trireme::engine {

using schedule::Instruction;
using schedule::Op;

// Of weights' size, the same for all groups that are gathered.
void Engine::draw_stand_in() {
  constexpr double kSize = 0.02;
  std::int64_t most = 0;
  for (std::size_t group = 0; group < plan_.groups.size(); ++group) {
    if (plan_.chain.groups[group].is_gathered()) most = std::max(most, plan_.groups[group].numel);
  }
  if (most == 0) return;
  stand_in_ = Memory(most * size_of(chain_.compute_dtype), options_.device_memory());
  if (options_.device >= 0) {
    const kernels::Stream stream;
    const kernels::OnStream on(stream);
    kernels::fill_normal_rows({.rows = 1, .columns = most, .pitch = most, .stride = most, .scale = kSize},
                              chain_.compute_dtype, stand_in_.at(0));
    return stream.synchronize();
  }
  dispatch(chain_.compute_dtype, [&]<class T>(T) {
    auto* values = reinterpret_cast<T*>(stand_in_.at(0));
    for (std::int64_t i = 0; i < most; ++i) {
      values[i] = T(static_cast<float>(kSize * random_normal(0, 0, static_cast<std::uint64_t>(i))));
    }
  });
}

// What a silent step has in place of it. slot: of a reduction.
void Engine::skip_collective(const Instruction& instruction, const std::byte* slot) {
  switch (instruction.op) {
    case Op::count: report_.valid_tokens = own_tokens() * comm_.world_size(); return;
    case Op::reduce: return add_own_slice(instruction, slot);
    case Op::report: return device_ != nullptr ? report_of_device() : report_own();
    default: return;
  }
}

// As one rank would add it, alone with its gradient.
void Engine::add_own_slice(const Instruction& instruction, const std::byte* slot) {
  if (instruction.reduce != schedule::ReduceKind::reduce_scatter || slot == nullptr) return;
  const std::int64_t numel = plan_.groups[instruction.group].slice_numel();
  const std::byte* own = slot + plan_.options.slice_of(comm_.rank()) * numel * size_of(reduce_types_.slot);
  add_gradient(numel, own, reduce_types_, slice_sum(instruction.group), instruction.first);
}

void Engine::report_own() {
  double sum = 0;
  for (const double loss : own_losses_) sum += loss;
  report_.loss = sum / static_cast<double>(std::max(own_tokens(), std::int64_t{1}));
}

}  // namespace trireme::engine
