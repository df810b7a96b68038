// How fast this machine is: the numbers of schedule/rates.h, measured.
#pragma once
#include "comm/communicator.h"
#include "schedule/rates.h"

namespace trireme::measure {

// Takes about ten times `seconds`. A collective: all ranks compute at the same time, as they do in training.
// Collectives are measured over comm, alone and while the compute threads work; on one rank their numbers stay the
// defaults.
schedule::Rates measure_rates(int threads, comm::Communicator& comm, double seconds);

}  // namespace trireme::measure
