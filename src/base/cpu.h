// What the processor can do, and how much of it is ours.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace trireme {

// The x86-64 level (psABI): 4 AVX-512, 3 AVX2 and FMA, 2 SSE4.2, else 1. Processors have the other features of a level
// with those.
int x86_64_level();

// As the system calls it; "unknown processor" where it does not say.
std::string processor_name();

int count_cpus();  // logical processors that this process may run on; at least 1

// work(begin, end) for ranges that make up 0 .. n, each of `least` or more, on as many of those processors; by the
// calling thread alone where n is less than two of them. Returns when all is done; work does not throw.
void in_parallel(std::int64_t n, std::int64_t least, const std::function<void(std::int64_t, std::int64_t)>& work);

}  // namespace trireme
