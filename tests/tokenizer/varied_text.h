// Text that holds everything a tokenizer can stumble over, the same for the same seed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// Documents of a few kB, together at least `bytes`: prose, contractions, code, numbers, CJK, Arabic, Hangul syllables
// and Jamo, Indic scripts, emoji with joiners, marks in every order, all white space, control characters, bytes that
// are no UTF-8, special tokens, and code points drawn from all of Unicode.
std::vector<std::string> varied_documents(std::uint64_t seed, std::size_t bytes);

// Documents in one file, for programs in another language: a little-endian uint32 count of bytes, then the bytes.
std::string to_records(const std::vector<std::string>& documents);
std::vector<std::string> from_records(std::string_view bytes);

std::string random_bytes(std::uint64_t seed, std::size_t count);

}  // namespace trireme::data
