#include "train/rates_here.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "kernels/kernels.h"

namespace trireme::train {

schedule::RatesKey rates_key(int threads) {
  return {processor_name(), threads,
          std::string(TRIREME_VERSION ", ") + std::string(to_string(kernels::level())) + " kernels"};
}

schedule::Rates rates_here(const config::Plan& plan) {
  if (plan.training.device == config::Device::cuda) return {};
  try {
    return schedule::find_rates(rates_key(plan.training.compute_threads));
  } catch (const Error& error) {
    log::warn(std::string("measured rates are left aside: ") + error.what());
    return {};
  }
}

}  // namespace trireme::train
