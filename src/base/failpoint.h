// Named places at which a test makes the program fail on purpose.
//
// TRIREME_FAILPOINTS="checkpoint.before_manifest=kill@2;step=throw@rank1@5": entries NAME=ACTION[@rankR][@N|@every], on
// the N-th hit (default 1) in this process (of rank R only, if given). Actions: throw, kill (SIGKILL), exit(CODE),
// hang, sleep(MS), delay(US) (now and then, for a random time up to that), spoil. An entry that cannot be read is Error
// TR3090. Costs one relaxed load when the variable is unset.
#pragma once
#include <string_view>

namespace trireme {

// rank: -1 where the place has none. True where the place, if it can, is to spoil what it computes.
bool failpoint(std::string_view name, int rank = -1);

// Replaces the table (tests in one process); an empty text clears it.
void set_failpoints(std::string_view text);

}  // namespace trireme
