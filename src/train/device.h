// The device that a plan asks for.
#pragma once
#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "config/plan.h"
#include "train/batch.h"

namespace trireme::train {

// CUDA devices of this machine that the kernels run on, from the first on.
int usable_devices();

// auto becomes cuda where each of this machine's ranks has a usable device, else cpu; with a notice where the machine
// looks as if it were meant to be cuda.
config::Plan with_device(config::Plan plan, const Ranks& ranks, int devices = usable_devices());

// The rest is of plans that say which.

// What decides the bits of sums beside the number of threads: "avx512", "cuda".
std::string kernel_level_of(const config::Plan& plan);

// Throws Error TR3064 where the plan asks for devices and there is none for this rank, or one that the kernels do not
// run on, TR3065 where the driver is too old.
void check_device(const config::Plan& plan, const Ranks& ranks);
// Error TR3064 on all ranks where their machines made different things of auto. A collective.
void check_same_device(const config::Plan& plan, comm::Communicator& comm);

// engine::ranks_in_reach(), where devices may reach each other: 1 with distributed.same_host_memory=false, or
// NCCL_P2P_DISABLE=1, which is set where they do not work together. A collective.
int ranks_in_reach(const config::Plan& plan, const Ranks& ranks, comm::Communicator& comm);
// What that should give where all machines are as this one, which asks nobody.
int expected_in_reach(const config::Plan& plan, const Ranks& ranks);

// --device auto, cpu or cuda: whether `ranks` ranks of this machine run on CUDA devices, one each. Error TR3064 where
// they must and there are too few, or one that the kernels do not run on, TR3065 where the driver is too old.
bool uses_device(const std::string& device, int ranks = 1);

// Of the rank's device, what nobody uses now; 0: the plan is for the CPU, or there is no such device.
std::int64_t free_device_memory(const config::Plan& plan, const Ranks& ranks);

}  // namespace trireme::train
