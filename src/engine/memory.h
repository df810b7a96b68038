// One block of zeroed, page-aligned memory, mapped and unmapped as a whole.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trireme::engine {

class Memory {
 public:
  Memory() = default;
  explicit Memory(std::int64_t bytes);  // throws Error TR1301 with the bytes asked for
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  std::byte* at(std::int64_t offset) const { return data_ + offset; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace trireme::engine
