// Makes a schedule explicit: a place for each buffer and every wait between lanes.
#pragma once
#include "schedule/schedule.h"

namespace trireme::schedule {

// Pure. On each tier, places persistent buffers one after the other and transient ones in one arena by interval
// colouring of their lifetimes in issue order, and adds to each instruction the waits that read-after-write,
// write-after-read and write-after-write demand across lanes, also between different buffers that share bytes. Waits
// implied by lane order and by other waits are left out.
//
// A gradient slot that the reduce lane reads keeps its place while gradient_slots - 1 further units run, so that
// BACKWARD need not wait for REDUCE at once; likewise a fetched slice that GATHER reads, for gather_ahead units.
Program lower(Program schedule, const Options& options);

}  // namespace trireme::schedule
