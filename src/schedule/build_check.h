// What build_schedule() is asked for can be built.
#pragma once
#include "schedule/chain_spec.h"

namespace trireme::schedule {

// Errors as build_schedule().
void check_arguments(const ChainSpec& chain, const Options& options, int rank);

}  // namespace trireme::schedule
