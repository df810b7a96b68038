// distributed.wrap_classes: what the blocks of a model are called in transformers.
#pragma once
#include "config/plan.h"

namespace trireme::config {

// Where wrap_classes is given, one of them must be the class of the blocks of plan.model.family: Error TR2104. The
// others become a notice. A family that transformers does not have is not checked.
void check_wrap_classes(Plan& plan);

}  // namespace trireme::config
