// The kinds of `trireme bench`, a file each.
#pragma once
#include "cli/commands.h"

namespace trireme::cli {

int run_bench_train(Arguments arguments);  // bench_train.cpp

}  // namespace trireme::cli
