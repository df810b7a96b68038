// The end of a step: the norm, what the ranks tell each other, whether the gradients may be used, the time taken.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "comm/collectives.h"
#include "engine/engine.h"
#include "engine/on_device.h"
#include "kernels/device.h"

namespace trireme::engine {

using schedule::Instruction;
using schedule::Op;

std::string Engine::place_of_step() const {
  return "step " + std::to_string(step_options_.run_step > 0 ? step_options_.run_step : step_options_.step);
}

// Where no scale falls, only other samples can help; after so many skipped steps in a row they do not.
constexpr int kMostSkips = 100;

void Engine::move_loss_scale() {
  skips_in_a_row_ = report_.non_finite ? skips_in_a_row_ + 1 : 0;
  if (skips_in_a_row_ > kMostSkips) {
    throw Error(Error::kNoProgress, place_of_step(),
                to_string(*report_.non_finite) + ", as in each of the " + std::to_string(kMostSkips) +
                    " steps before it, which were skipped",
                "resume from a checkpoint of before the first of them with a lower learning_rate");
  }
  const auto next = optim::next_loss_scale(options_.loss_scale, loss_scale_, report_.non_finite.has_value());
  if (!next) {
    std::ostringstream numbers;
    numbers << loss_scale_.scale << " already; the loss was " << report_.loss;
    throw Error(Error::kNoProgress, place_of_step(),
                to_string(*report_.non_finite) + "; the loss scale is at its minimum of " + numbers.str(),
                "mixed_precision=bf16 needs no loss scale; or lower min_loss_scale or learning_rate");
  }
  loss_scale_ = *next;
}

void Engine::run_report() {
  const std::size_t rounds = own_losses_.size();
  std::vector<double> own = own_losses_;
  own.insert(own.end(), {step_options_.stop_requested ? 1.0 : 0.0, own_.squares.high, own_.squares.low,
                         static_cast<double>(own_non_finite_)});
  const std::size_t size = own.size();
  TRIREME_CHECK(std::ssize(own) == schedule::report_words(static_cast<int>(rounds)), "report exchanges what it costs");
  const std::vector<double> all = comm::gathered(comm_, own);
  const auto word_of = [&](int rank) { return std::span(all).subspan(static_cast<std::size_t>(rank) * size, size); };
  double sum = 0;  // in micro-batch order, so that the loss does not depend on the ranks
  for (int m = 0; m < options_.split.num_micro_batches; ++m) {
    const int rank = m % options_.split.num_data_ranks, round = m / options_.split.num_data_ranks;
    report_.micro_batch_losses.push_back(word_of(rank)[static_cast<std::size_t>(round)]);
    sum += report_.micro_batch_losses.back();
  }
  report_.loss = report_.valid_tokens > 0 ? sum / static_cast<double>(report_.valid_tokens) : 0.0;
  // Every rank of the first replica has summed its own slices, or each of them everything.
  const int parts = plan_.updates_slices() ? plan_.options.shard_ranks() : 1;
  kernels::ExactSum squares;
  double non_finite = -1;
  int found_by = -1;
  for (int rank = 0; rank < comm_.world_size(); ++rank) {
    const std::span<const double> word = word_of(rank).subspan(rounds);
    if (word[0] != 0) report_.stop_requested = true;
    if (rank >= parts) continue;
    squares.add(kernels::ExactSum{word[1], word[2]});
    if (word[3] < 0 || (found_by >= 0 && word[3] >= non_finite)) continue;
    non_finite = word[3];
    found_by = rank;
  }
  set_norm(squares.value());
  if (!std::isfinite(report_.gradient_norm)) on_non_finite(static_cast<std::int64_t>(non_finite), found_by);
}

void Engine::set_norm(double squares) {
  const float norm = kernels::norm_of(squares, report_.loss_scale);
  report_.gradient_norm = norm;
  report_.clip_factor = kernels::clip_factor_of(norm, options_.gradient_clipping);
  due_ = {step_options_.learning_rate, step_options_.step};
  own_.update = kernels::update_of(squares, report_.loss_scale, options_.gradient_clipping);
}

// On all ranks alike: they have the same report.
void Engine::on_non_finite(std::int64_t logical_tensor, int rank) {
  NonFinite found{.rank = rank};
  if (rank >= 0) found.tensor = logical_name(chain_, logical_tensor);
  for (std::size_t m = 0; m < report_.micro_batch_losses.size() && found.micro_batch < 0; ++m) {
    if (std::isfinite(report_.micro_batch_losses[m])) continue;
    found.micro_batch = static_cast<int>(m);
    found.micro_batch_rank = found.micro_batch % options_.split.num_data_ranks;
  }
  if (!options_.skips_non_finite) {
    throw Error(
        1302, place_of_step(),
        to_string(found) + (plan_.steps_early() ? "; some weights have been updated with it: go on from a checkpoint"
                                                : "; weights and optimizer state are those of the step before"),
        "a lower learning_rate, a longer warmup_steps or gradient_clipping helps most often; "
        "training.nonfinite_gradients=skip leaves such steps out");
  }
  report_.non_finite = std::move(found);
}

void Engine::run_norm() {
  kernels::zero(&numbers_->squares, sizeof(kernels::ExactSum));
  for (int g = 0; g < static_cast<int>(plan_.groups.size()); ++g) {
    if (!plan_.groups[g].trainable) continue;
    kernels::flat_table().sum_of_squares(state_.updated(g).size(), state_.updated_accumulator(g),
                                         state_.accumulator_dtype(), &numbers_->squares);
  }
  if (device_ == nullptr) find_non_finite();
}

void Engine::find_non_finite() {
  own_non_finite_ = std::isfinite(own_.squares.value()) ? -1 : first_non_finite(chain_, plan_.groups, state_);
}

StepReport::Seconds Engine::sum_of_seconds() const {
  const std::vector<schedule::Span>& spans = report_.spans;
  StepReport::Seconds sum;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Instruction& instruction = plan_.programs[report_.program].instructions[i];
    const double seconds = spans[i].length();
    if (instruction.lane == schedule::Lane::compute) sum.computing += seconds;
    switch (instruction.op) {
      case Op::forward: sum.forward += seconds; break;
      case Op::recompute: sum.recompute += seconds; break;
      case Op::loss:
      case Op::backward: sum.backward += seconds; break;
      case Op::norm:
      case Op::step: sum.step += seconds; break;
      case Op::gather: sum.gather += seconds; break;
      case Op::count:
      case Op::reduce:
      case Op::accumulate:
      case Op::report: sum.reduce += seconds; break;
      case Op::offload:
      case Op::fetch:
      case Op::snapshot: sum.copy += seconds; break;
      case Op::release: break;
    }
  }
  sum.waiting = schedule::waiting_seconds(plan_.programs[report_.program], spans);
  return sum;
}

}  // namespace trireme::engine
