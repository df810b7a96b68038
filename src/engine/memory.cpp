#include "engine/memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/device.h"

namespace trireme::engine {
namespace {

std::byte* map(std::int64_t bytes) {
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(1301, "memory", "the system has no " + std::to_string(bytes) + " bytes for this rank",
                "`trireme train CONFIG --dry-run` prints the memory by owner; a smaller micro_batch_size needs less");
  }
  // Fewer page faults at the start and fewer misses later; a kernel without huge pages says no, and that is fine.
  madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

void unmap(std::byte* memory, std::int64_t bytes) {
  munmap(memory, static_cast<std::size_t>(bytes));
}

std::byte* map_pinned(std::int64_t bytes) {
  constexpr std::int64_t kPage = 4096, kWorthAThread = (64 << 20) / kPage;
  std::byte* memory = map(bytes);
  // The system finds and zeroes a page when it is first written; pinning would have it do so for one after another.
  in_parallel((bytes + kPage - 1) / kPage, kWorthAThread, [memory](std::int64_t begin, std::int64_t end) {
    for (std::int64_t page = begin; page < end; ++page) memory[page * kPage] = std::byte{0};
  });
  try {
    kernels::pin(memory, bytes);
  } catch (...) {
    unmap(memory, bytes);
    throw;
  }
  return memory;
}

void unmap_pinned(std::byte* memory, std::int64_t bytes) {
  kernels::unpin(memory);
  unmap(memory, bytes);
}

std::byte* allocate_on_device(std::int64_t bytes) {
  std::byte* memory = kernels::allocate_on_device(bytes);
  const kernels::Stream stream;
  const kernels::OnStream on(stream);
  kernels::zero(memory, bytes);
  stream.synchronize();
  return memory;
}

}  // namespace

Memory::Memory(std::int64_t bytes, MemoryKind kind) : bytes_(bytes), kind_(kind) {
  if (bytes == 0) return;
  switch (kind) {
    case MemoryKind::host: data_ = map(bytes); break;
    case MemoryKind::pinned: data_ = map_pinned(bytes); break;
    case MemoryKind::device: data_ = allocate_on_device(bytes); break;
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), kind_(other.kind_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  return *this;
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  switch (kind_) {
    case MemoryKind::host: unmap(data_, bytes_); break;
    case MemoryKind::pinned: unmap_pinned(data_, bytes_); break;
    case MemoryKind::device: kernels::free_on_device(data_); break;
  }
}

}  // namespace trireme::engine
