// The rates that `trireme bench` left for this machine.
#pragma once
#include "config/plan.h"
#include "schedule/rates.h"

namespace trireme::train {

// What rates of a rank are kept under: on the CPU with so many compute threads, or on a CUDA device.
schedule::RatesKey rates_key(int threads);
schedule::RatesKey device_rates_key(int device);

// The measured rates of this machine, else the defaults: also for a device that this machine lacks. A file that is
// wrong is told and left aside.
schedule::Rates rates_here(const config::Plan& plan);

}  // namespace trireme::train
