// Digests of data at rest (XXH3): they find corruption, they do not resist an attacker.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0);
std::string digest(std::span<const std::byte> bytes);  // XXH3-128 as 32 hex digits
std::string digest(std::string_view text);

// The digest of a stream of pieces, equal to digest() of their concatenation.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  void add(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  void* state_;
};

}  // namespace trireme
