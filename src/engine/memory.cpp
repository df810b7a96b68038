#include "engine/memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace trireme::engine {

Memory::Memory(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* map =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    throw Error(1301, "memory", "the system has no " + std::to_string(bytes) + " bytes for this rank",
                "`trireme train CONFIG --dry-run` prints the memory by owner; a smaller micro_batch_size needs less");
  }
  // Fewer page faults at the start and fewer misses later; a kernel without huge pages says no, and that is fine.
  madvise(map, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(map);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

}  // namespace trireme::engine
