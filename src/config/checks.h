// Checks between the values of a plan that need neither model nor data nor ranks.
#pragma once
#include <string>

#include "config/plan.h"

namespace trireme::config {

// Throws Error TR2104 (values that do not fit together) or TR2106 (no end of the run is given) at the place of a key
// that the user wrote; adds notices on keys that another key makes idle. place: where the plan as a whole comes from.
void check_plan(Plan& plan, const std::string& place);

}  // namespace trireme::config
