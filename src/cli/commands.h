// The commands of the `trireme` binary: one file each. Arguments are those after the command's name; the result is the
// exit code.
#pragma once
#include <span>
#include <string>

namespace trireme::cli {

using Arguments = std::span<const std::string>;

int run_train(Arguments arguments);  // train.cpp
// Everything that `train` checks before a process starts, for world_size ranks; with --dry-run prints the plan and
// returns true: nothing is to be started. Throws what the ranks would throw.
bool check_train(Arguments arguments, int world_size);

int run_launch(Arguments arguments);    // launch.cpp
int run_generate(Arguments arguments);  // generate.cpp
int run_data(Arguments arguments);      // data.cpp: prepare, show
int run_convert(Arguments arguments);   // convert.cpp
int run_plan(Arguments arguments);      // plan.cpp
int run_config(Arguments arguments);    // config.cpp: docs, schema, diff
int run_setup(Arguments arguments);     // setup.cpp: deepspeed, fsdp
int run_bench(Arguments arguments);     // bench.cpp

}  // namespace trireme::cli
