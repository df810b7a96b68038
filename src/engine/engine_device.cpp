// An engine on a device: the same programs, issued to streams. The host waits once a step, for what is reported.
#include <cmath>
#include <cstring>

#include "engine/on_device.h"

namespace trireme::engine {

void Engine::move_to_device() {
  device_ = std::make_unique<OnDevice>();
  const auto rounds = static_cast<std::int64_t>(options_.split.rounds());
  const auto bytes = static_cast<std::int64_t>(sizeof(Numbers)) + rounds * static_cast<std::int64_t>(sizeof(double));
  device_->numbers = Memory(bytes, MemoryKind::device);
  device_->numbers_on_host = Memory(bytes, MemoryKind::pinned);
  numbers_ = reinterpret_cast<Numbers*>(device_->numbers.at(0));
  losses_ = reinterpret_cast<double*>(device_->numbers.at(sizeof(Numbers)));
  device_->arrays = BatchArrays(options_.micro_batch, rounds, 0, MemoryKind::device);
  device_->batches.resize(static_cast<std::size_t>(rounds));
  std::function<void()> check;
  if (comm_.world_size() > 1) {
    check = [this] { check_peers(); };
    device_->arrived = Memory(plan_.memory_by_owner.at("collectives"), MemoryKind::device);
    device_->parts =
        Memory(comm_.world_size() * static_cast<std::int64_t>(sizeof(kernels::ExactSum)), MemoryKind::device);
    const auto talking = [this](schedule::Scope scope) {
      comm::Communicator& ranks = ranks_of(scope);
      if (!plan_.by_copies(scope)) return std::make_unique<DeviceRanks>(ranks, device_->arrived);
      std::vector<const Memory*> targets{&state_.memory(schedule::Tier::device), &arena_, &device_->parts};
      return std::make_unique<DeviceRanks>(ranks, device_->arrived, std::move(targets));
    };
    device_->shards = talking(schedule::Scope::shards);
    if (replicas_) device_->replicas = talking(schedule::Scope::replicas);
  }
  device_->executor = std::make_unique<DeviceExecutor>(
      plan_.programs, [this](int program, int instruction) { run(program, instruction); }, std::move(check));
}

void Engine::OnDevice::throw_if_failed() {
  {
    const std::lock_guard lock(mutex);
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  for (const auto* ranks : {&shards, &replicas}) {
    if (*ranks) (*ranks)->throw_if_failed();
  }
}

void Engine::OnDevice::abort() const noexcept {
  for (const auto* ranks : {&shards, &replicas}) {
    if (*ranks) (*ranks)->abort();
  }
}

// While the host waits for the device, which may wait for a peer that never comes.
void Engine::check_peers() {
  try {
    comm_.throw_if_broken();
    device_->throw_if_failed();
  } catch (...) {
    free_peers();
    throw;
  }
}

// What was issued must have ended before the memory goes that it works on.
void Engine::leave_device() noexcept {
  if (device_ == nullptr) return;
  try {
    wait_for_device();
  } catch (const std::exception&) {
    device_->abort();
  }
}

void Engine::run_on_device(std::size_t program, std::span<schedule::Span> record) {
  try {
    kernels::use_device(options_.device);
    const bool is_step = plan_.programs[program].pass != schedule::Pass::drain;
    if (is_step) upload_batches();
    device_->executor->run(static_cast<int>(program), record);
    if (is_step) finish_step_on_device();
  } catch (...) {
    free_peers();
    throw;
  }
}

void Engine::upload_batches() {
  const kernels::OnStream on(device_->executor->stream(schedule::Lane::compute));
  for (std::size_t k = 0; k < batches_.size(); ++k) {
    if (batches_[k].shape.batch > 0) device_->batches[k] = device_->arrays.upload(batches_[k], k);
  }
}

// The one time in a step that the host waits.
void Engine::finish_step_on_device() {
  device_->executor->wait_for(device_->reported);
  device_->throw_if_failed();
  std::memcpy(&own_, device_->numbers_on_host.at(0), sizeof(own_));
  std::memcpy(own_losses_.data(), device_->numbers_on_host.at(sizeof(own_)), own_losses_.size() * sizeof(double));
  if (step_options_.silent) return report_own();
  if (!std::isfinite(own_.squares.value())) wait_for_device();
  find_non_finite();
  run_report();
}

// Behind NORM: what STEP needs is made there, of all ranks' slices, and what the host wants to know is sent.
void Engine::report_of_device() {
  due_ = {step_options_.learning_rate, step_options_.step};
  const kernels::ExactSum* squares = &numbers_->squares;
  int parts = 1;
  if (plan_.updates_slices() && !step_options_.silent) {
    DeviceRanks& ranks = device_->ranks_of(schedule::Scope::shards);
    ranks.all_gather(reinterpret_cast<const std::byte*>(squares), device_->parts.at(0), sizeof(kernels::ExactSum));
    squares = reinterpret_cast<const kernels::ExactSum*>(device_->parts.at(0));
    parts = ranks.world_size();
  }
  kernels::flat_table().set_update(parts, squares, report_.loss_scale, options_.gradient_clipping, &numbers_->update);
  kernels::copy(device_->numbers_on_host.at(0), numbers_, device_->numbers.bytes());
  device_->reported.record(device_->executor->stream(schedule::Lane::reduce));
}

const Batch& Engine::batch_on_device(int round) const {
  return device_->batches[static_cast<std::size_t>(round)];
}

// What NORM found, where the host's processor reads it.
const kernels::Update& Engine::update_for_host() const {
  return device_ == nullptr ? numbers_->update
                            : reinterpret_cast<const Numbers*>(device_->numbers_on_host.at(0))->update;
}

void Engine::call_on_host(std::function<void()> work) {
  kernels::call_on_host([this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(device_->mutex);
      if (device_->failure == nullptr) device_->failure = std::current_exception();
    }
  });
}

void Engine::wait_for_device() const {
  if (device_ == nullptr) return;
  device_->executor->synchronize();
  device_->throw_if_failed();
}

LossResult Engine::evaluate_on_device(const Batch* batch) {
  kernels::use_device(options_.device);
  wait_for_device();  // for weights that another lane gathers
  {
    const kernels::OnStream on(device_->executor->stream(schedule::Lane::compute));
    if (batch == nullptr) {
      gather_for_others();
    } else {
      evaluate(device_->arrays.upload(*batch, 0), losses_);
    }
  }
  wait_for_device();
  LossResult result;
  if (batch == nullptr) return result;
  kernels::copy_now(&result.sum, losses_, sizeof(result.sum));
  result.weight = count_labels(*batch);
  return result;
}

}  // namespace trireme::engine
