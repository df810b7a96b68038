// Makes a schedule explicit: a place for each buffer and every wait between lanes.
#pragma once
#include "schedule/schedule.h"

namespace trireme::schedule {

// Pure. Places transient buffers in one arena by interval colouring of their lifetimes in issue order (a gradient slot
// lives until its reader has had gradient_slots further units' time, so that reduction can overlap backward), and adds
// to each instruction the waits that read-after-write, write-after-read and write-after-write demand across lanes, also
// between different buffers that share bytes. Waits implied by lane order and by other waits are left out.
Program lower(Program schedule, const Options& options);

}  // namespace trireme::schedule
