// The memory that MKL takes for itself: a thread keeps a block for each that a product of its uses at a time.
//
// MKL's own cache keeps every size that it was ever asked for (three buffers of 20 MB in all for a model of 4 MB), so
// it is off; its allocator is replaced, as its i_malloc.h allows, before it asks for the first time.
#include "kernels/torch/mkl_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

extern "C" {
extern void* (*i_malloc)(std::size_t);
extern void* (*i_calloc)(std::size_t, std::size_t);
extern void* (*i_realloc)(void*, std::size_t);
extern void (*i_free)(void*);
int mkl_serv_disable_fast_mm();
}

namespace trireme::kernels {
namespace {

constexpr std::size_t kKept = std::size_t{64} << 10;  // smaller ones are not worth a look

class Blocks {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Block* smallest = nullptr;  // of those that fit
    for (Block& block : blocks_) {
      if (!is_ours(block) || block.bytes < bytes) continue;
      if (smallest == nullptr || block.bytes < smallest->bytes) smallest = &block;
    }
    if (smallest == nullptr) smallest = make(bytes);
    if (smallest == nullptr) return nullptr;
    smallest->used = true;
    return smallest->data;
  }

  // Whether it is one of these.
  bool give_back(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = find(data);
    if (found == blocks_.end()) return false;
    found->used = false;
    return true;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    for (const Block& block : blocks_) {
      if (!block.used) std::free(block.data);
    }
    std::erase_if(blocks_, [](const Block& block) { return !block.used; });
  }

  // Of a block; 0 for other memory.
  std::size_t bytes_of(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = find(data);
    return found == blocks_.end() ? 0 : found->bytes;
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
    bool used;
    std::thread::id thread;
  };

  static bool is_ours(const Block& block) { return !block.used && block.thread == std::this_thread::get_id(); }

  std::vector<Block>::iterator find(const void* data) {
    return std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.data == data; });
  }

  // In the place of one that is too small, where one is free.
  Block* make(std::size_t bytes) {
    const auto spare = std::find_if(blocks_.begin(), blocks_.end(), is_ours);
    if (spare != blocks_.end()) {
      std::free(spare->data);
      blocks_.erase(spare);
    }
    void* data = std::malloc(bytes);
    if (data == nullptr) return nullptr;
    return &blocks_.emplace_back(Block{data, bytes, false, std::this_thread::get_id()});
  }

  std::mutex mutex_;
  std::vector<Block> blocks_;
};

// Never destroyed: threads may still compute while the process ends.
Blocks& blocks() {
  static Blocks& all = *new Blocks;
  return all;
}

void* take(std::size_t bytes) {
  return bytes < kKept ? std::malloc(bytes) : blocks().take(bytes);
}
void* take_zeroed(std::size_t count, std::size_t bytes) {
  return std::calloc(count, bytes);
}
void give_back(void* data) {
  if (data != nullptr && !blocks().give_back(data)) std::free(data);
}
void* resize(void* data, std::size_t bytes) {
  const std::size_t had = data == nullptr ? 0 : blocks().bytes_of(data);
  if (had == 0) return std::realloc(data, bytes);
  void* fresh = take(bytes);
  if (fresh == nullptr) return nullptr;
  std::memcpy(fresh, data, std::min(had, bytes));
  blocks().give_back(data);
  return fresh;
}

struct Installed {
  Installed() {
    i_malloc = take;
    i_calloc = take_zeroed;
    i_realloc = resize;
    i_free = give_back;
    mkl_serv_disable_fast_mm();
  }
};
const Installed installed;

}  // namespace

void release_mkl_memory() {
  blocks().release();
}

}  // namespace trireme::kernels
