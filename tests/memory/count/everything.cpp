// Stands in for the C library's allocation functions in the whole process.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "memory/count/count.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the names of the C library's own.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace trireme::testing {
namespace {

enum Kind : std::uint8_t { kMapped, kLibrary, kOther, kNumKinds };

// Smaller ones are counted, as others of kShared, but not followed one by one.
constexpr std::size_t kFollowed = 4096;
constexpr std::size_t kPlaces = std::size_t{1} << 20;

struct Followed {
  const void* data;  // nullptr: free; kGone: was used
  std::int64_t bytes;
  Kind kind;
  std::uint8_t owner;
};
const void* const kGone = reinterpret_cast<const void*>(1);

struct Totals {
  std::array<std::int64_t, kNumKinds> now, most;
  std::int64_t sum, most_sum;
};

// Zeroed before any constructor runs: allocations come earlier than those.
Followed places[kPlaces];
Totals totals[kMostRanks + 1];
std::atomic_flag lock;
thread_local int owner_of_thread = kShared;

struct Locked {
  Locked() {
    while (lock.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Locked() { lock.clear(std::memory_order_release); }
};

void change(int owner, Kind kind, std::int64_t bytes) {
  Totals& total = totals[owner];
  total.now[kind] += bytes;
  total.sum += bytes;
  if (total.sum <= total.most_sum) return;
  total.most_sum = total.sum;
  total.most = total.now;
}

std::size_t place_of(const void* data) {
  return (reinterpret_cast<std::uintptr_t>(data) >> 4) * 0x9E3779B97F4A7C15u >> 44;
}

Kind kind_of(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return kOther;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* name = slash == nullptr ? info.dli_fname : slash + 1;
  for (const char* library : {"libtrireme_torch", "libtorch", "libc10"}) {
    if (std::strncmp(name, library, std::strlen(library)) == 0) return kLibrary;
  }
  return kOther;
}

void note(const void* data, std::size_t bytes, Kind kind) {
  if (data == nullptr) return;
  const Locked locked;
  const auto size = static_cast<std::int64_t>(bytes);
  if (bytes < kFollowed) return change(kShared, kOther, size);
  std::size_t place = place_of(data) % kPlaces;
  while (places[place].data != nullptr && places[place].data != kGone) place = (place + 1) % kPlaces;
  places[place] = {data, size, kind, static_cast<std::uint8_t>(owner_of_thread)};
  change(owner_of_thread, kind, size);
}

void forget(const void* data, std::size_t bytes) {
  if (data == nullptr) return;
  const Locked locked;
  if (bytes < kFollowed) return change(kShared, kOther, -static_cast<std::int64_t>(bytes));
  for (std::size_t place = place_of(data) % kPlaces; places[place].data != nullptr; place = (place + 1) % kPlaces) {
    if (places[place].data != data) continue;
    change(places[place].owner, places[place].kind, -places[place].bytes);
    places[place].data = kGone;
    return;
  }
}

void* noted(void* data, const void* caller) {
  if (data == nullptr) return nullptr;
  const std::size_t bytes = malloc_usable_size(data);
  note(data, bytes, bytes < kFollowed ? kOther : kind_of(caller));
  return data;
}

Counted counted(const std::array<std::int64_t, kNumKinds>& bytes) {
  return {bytes[kMapped], bytes[kLibrary], bytes[kOther]};
}

}  // namespace

bool counts_memory() {
  return true;
}
void count_for_rank(int rank) {
  owner_of_thread = rank + 1;
}
Counted counted_now(int rank) {
  const Locked locked;
  return counted(totals[rank + 1].now);
}
Counted counted_most(int rank) {
  const Locked locked;
  return counted(totals[rank + 1].most);
}
void forget_most() {
  const Locked locked;
  for (Totals& total : totals) {
    total.most = total.now;
    total.most_sum = total.sum;
  }
}

}  // namespace trireme::testing

using trireme::testing::forget;
using trireme::testing::note;
using trireme::testing::noted;

extern "C" {
void* malloc(std::size_t bytes) {
  return noted(__libc_malloc(bytes), __builtin_return_address(0));
}
void* calloc(std::size_t count, std::size_t bytes) {
  return noted(__libc_calloc(count, bytes), __builtin_return_address(0));
}
void* realloc(void* data, std::size_t bytes) {
  if (data != nullptr) forget(data, malloc_usable_size(data));
  void* moved = __libc_realloc(data, bytes);
  return noted(moved != nullptr || bytes == 0 ? moved : data, __builtin_return_address(0)) == nullptr ? nullptr : moved;
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return noted(__libc_memalign(alignment, bytes), __builtin_return_address(0));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return noted(__libc_memalign(alignment, bytes), __builtin_return_address(0));
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  void* data = noted(__libc_memalign(alignment, bytes), __builtin_return_address(0));
  if (data == nullptr) return ENOMEM;
  *out = data;
  return 0;
}
void free(void* data) {
  if (data != nullptr) forget(data, malloc_usable_size(data));
  __libc_free(data);
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  const long result = syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  void* data = std::bit_cast<void*>(result);
  if (data != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0 && bytes >= trireme::testing::kFollowed) {
    using trireme::testing::kLibrary;
    const bool by_library = trireme::testing::kind_of(__builtin_return_address(0)) == kLibrary;
    note(data, bytes, by_library ? kLibrary : trireme::testing::kMapped);
  }
  return data;
}
int munmap(void* address, std::size_t bytes) {
  if (bytes >= trireme::testing::kFollowed) forget(address, bytes);
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}
}
