#include "stand_in/memory.h"

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace trireme::stand_in {
namespace {

struct Block {
  std::size_t size;
  bool is_pinned;
};

std::mutex mutex;
std::map<const std::byte*, Block, std::greater<>> blocks;  // by where they begin
bool is_open = false;

void protect(const std::byte* memory, const Block& block) {
  if (block.is_pinned) return;
  const int error = mprotect(const_cast<std::byte*>(memory), block.size, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
  TRIREME_CHECK(error == 0, "mprotect failed");
}

void add(const std::byte* memory, const Block& block) {
  const std::lock_guard lock(mutex);
  const auto before = blocks.lower_bound(memory + block.size - 1);
  TRIREME_CHECK(before == blocks.end() || before->first + before->second.size <= memory,
                "what is allocated or pinned lies in what is not freed or unpinned");
  blocks[memory] = block;
  protect(memory, block);
}

Block remove(const std::byte* memory, bool is_pinned) {
  const std::lock_guard lock(mutex);
  const auto found = blocks.find(memory);
  TRIREME_CHECK(found != blocks.end() && found->second.is_pinned == is_pinned,
                "what is freed was not allocated, or what is unpinned was not pinned");
  const Block block = found->second;
  blocks.erase(found);
  return block;
}

}  // namespace

std::byte* allocate(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TRIREME_CHECK(memory != MAP_FAILED, "mmap failed");
  std::memset(memory, 0xff, size);
  auto* begin = static_cast<std::byte*>(memory);
  add(begin, {size, false});
  return begin;
}
void free(std::byte* memory) {
  munmap(memory, remove(memory, false).size);
}
void pin(std::byte* memory, std::int64_t bytes) {
  add(memory, {static_cast<std::size_t>(bytes), true});
}
void unpin(std::byte* memory) {
  remove(memory, true);
}

std::int64_t bytes_in_use() {
  const std::lock_guard lock(mutex);
  std::int64_t bytes = 0;
  for (const auto& [memory, block] : blocks) bytes += block.is_pinned ? 0 : static_cast<std::int64_t>(block.size);
  return bytes;
}

bool device_reaches(const void* address) {
  const std::lock_guard lock(mutex);
  const auto* byte = static_cast<const std::byte*>(address);
  const auto before = blocks.lower_bound(byte);
  return before != blocks.end() && byte < before->first + before->second.size;
}

void let_reach_device(bool may) {
  const std::lock_guard lock(mutex);
  if (std::exchange(is_open, may) == may) return;
  for (const auto& [memory, block] : blocks) protect(memory, block);
}

}  // namespace trireme::stand_in
