// How fast this machine is: the numbers of schedule/rates.h, measured.
#pragma once
#include "comm/communicator.h"
#include "schedule/rates.h"

namespace trireme::measure {

struct RatesOptions {
  int device = -1;       // of this rank; below 0: the CPU
  int threads = 1;       // that compute, on the CPU
  int host_threads = 1;  // beside a device: of the updates of what is in host memory, as engine::Options has them
  double seconds = 0.3;  // for each number, about
};

// A collective: all ranks compute at the same time, as they do in training. Collectives are measured over comm, alone
// and while products are computed beside; on one rank their numbers stay the defaults.
schedule::Rates measure_rates(const RatesOptions& options, comm::Communicator& comm);

}  // namespace trireme::measure
