#include "train/rates_here.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "kernels/device.h"
#include "kernels/kernels.h"

namespace trireme::train {

schedule::RatesKey rates_key(int threads) {
  return {processor_name(), threads,
          std::string(TRIREME_VERSION ", ") + std::string(to_string(kernels::level())) + " kernels"};
}

schedule::RatesKey device_rates_key(int device) {
  return {kernels::device_facts(device).name, 1, TRIREME_VERSION ", cuda kernels"};
}

schedule::Rates rates_here(const config::Plan& plan) {
  const bool on_device = plan.training.device == config::Device::cuda;
  if (on_device && kernels::num_devices() == 0) return {};
  try {
    return schedule::find_rates(on_device ? device_rates_key(0) : rates_key(plan.training.compute_threads));
  } catch (const Error& error) {
    log::warn(std::string("measured rates are left aside: ") + error.what());
    return {};
  }
}

}  // namespace trireme::train
