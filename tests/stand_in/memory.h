// Memory of the stand-in for a CUDA device. Thread-safe.
//
// Only what runs on the device reaches its memory: a thread of the host that tries dies of SIGSEGV. What nothing was
// written to is NaN. A freed block is gone at once, whatever a stream has still to do with it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trireme::stand_in {

std::byte* allocate(std::int64_t bytes);
void free(std::byte* memory);
void pin(std::byte* memory, std::int64_t bytes);  // of the host, whose it stays
void unpin(std::byte* memory);
std::int64_t bytes_in_use();  // of the device's memory

bool device_reaches(const void* address);
void let_reach_device(bool may);  // the threads of this process, from now on

}  // namespace trireme::stand_in
