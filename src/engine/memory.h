// One block of zeroed memory, taken and given back as a whole: of the host, page-aligned; the same pinned, which
// devices reach too; or of the calling thread's device.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trireme::engine {

enum class MemoryKind : std::uint8_t { host, pinned, device };

class Memory {
 public:
  Memory() = default;
  explicit Memory(std::int64_t bytes,
                  MemoryKind kind = MemoryKind::host);  // throws Error TR1301 with the bytes asked for
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  std::byte* at(std::int64_t offset) const { return data_ + offset; }
  std::int64_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::host;
};

}  // namespace trireme::engine
