// The kinds of `trireme bench`, a file each.
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"

namespace trireme::cli {

int run_bench_train(Arguments arguments);      // bench_train.cpp
int run_bench_models(Arguments arguments);     // bench_work.cpp
int run_bench_gemm(Arguments arguments);       // the same
int run_bench_attention(Arguments arguments);  // the same
int run_bench_kernels(Arguments arguments);    // bench_kernels.cpp
int run_bench_comm(Arguments arguments);       // bench_comm.cpp

// The process starts itself as so many ranks, with arguments by which they know that they are some.
int launch_bench(int ranks, std::vector<std::string> command);

}  // namespace trireme::cli
