// The ids of words seen lately. Bounded: a word that needs the place of another replaces it.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::data {

// One a thread. Words of more than kMaxWord bytes or kMaxIds ids are not kept: they seldom come back.
class WordCache {
 public:
  static constexpr std::size_t kMaxWord = 23;
  static constexpr std::size_t kMaxIds = 9;

  struct Key {
    std::array<std::uint64_t, 3> parts;  // the bytes, zeros, and the length in the last byte
    bool operator==(const Key& other) const {
      return ((parts[0] ^ other.parts[0]) | (parts[1] ^ other.parts[1]) | (parts[2] ^ other.parts[2])) == 0;
    }
  };

  WordCache() : entries_(kEntries) {}

  // word.size() is 1 .. kMaxWord
  static Key make_key(std::string_view word) {
    Key key{};
    const std::size_t size = word.size();
    if (size <= 8) {
      key.parts[0] = load_up_to_8(word.data(), size);
    } else {
      key.parts[0] = load_8(word.data());
      if (size <= 16) {
        key.parts[1] = load_8(word.data() + size - 8) >> (8 * (16 - size));
      } else {
        key.parts[1] = load_8(word.data() + 8);
        key.parts[2] = load_8(word.data() + size - 8) >> (8 * (24 - size));
      }
    }
    key.parts[2] |= static_cast<std::uint64_t>(size) << 56;
    return key;
  }

  // Empty where the word is not known; valid until the next insert.
  std::span<const std::int32_t> find(const Key& key) const {
    const Entry& entry = entries_[place(key)];
    if (!(entry.key == key)) return {};
    return {entry.ids.data(), entry.count};
  }

  void insert(const Key& key, std::span<const std::int32_t> ids) {
    if (ids.empty() || ids.size() > kMaxIds) return;
    Entry& entry = entries_[place(key)];
    entry.key = key;
    entry.count = static_cast<std::uint32_t>(ids.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr std::size_t kEntries = 1u << 15;
  struct alignas(64) Entry {
    Key key{};
    std::array<std::int32_t, kMaxIds> ids{};
    std::uint32_t count = 0;
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;

  static std::uint64_t load_8(const char* bytes) {
    std::uint64_t value;
    std::memcpy(&value, bytes, 8);
    return value;
  }

  static std::uint64_t load_up_to_8(const char* bytes, std::size_t size) {
    if (size == 8) return load_8(bytes);
    if (size >= 4) {
      std::uint32_t low, high;
      std::memcpy(&low, bytes, 4);
      std::memcpy(&high, bytes + size - 4, 4);
      return low | static_cast<std::uint64_t>(high) << (8 * (size - 4));
    }
    const auto byte = [&](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])); };
    return byte(0) | byte(size / 2) << (8 * (size / 2)) | byte(size - 1) << (8 * (size - 1));
  }

  static std::size_t place(const Key& key) {
    std::uint64_t hash = key.parts[0] * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 32) ^ key.parts[1]) * 0xC2B2AE3D27D4EB4Fu;
    hash = (hash ^ (hash >> 32) ^ key.parts[2]) * 0x9E3779B97F4A7C15u;
    return hash >> (64 - 15);
  }
};

}  // namespace trireme::data
