// The rates that `trireme bench` left for this machine.
#pragma once
#include "schedule/rates.h"

namespace trireme::train {

// What rates of a rank with so many compute threads are kept under.
schedule::RatesKey rates_key(int threads);

// The measured rates of this machine, else the defaults; a file that is wrong is told and left aside.
schedule::Rates rates_here(int threads);

}  // namespace trireme::train
