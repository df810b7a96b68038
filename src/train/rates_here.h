// The rates that `trireme bench` left for this machine.
#pragma once
#include "config/plan.h"
#include "schedule/rates.h"

namespace trireme::train {

// What rates of a rank with so many compute threads are kept under.
schedule::RatesKey rates_key(int threads);

// The measured rates of this machine, else the defaults, as on devices, of which there are none yet; a file that is
// wrong is told and left aside.
schedule::Rates rates_here(const config::Plan& plan);

}  // namespace trireme::train
