#include "base/hash.h"

#include <gtest/gtest.h>

#include <random>

#include "support/seed.h"

namespace trireme {
namespace {

// The values that XXH3 defines for empty input, and digests that must never change: files at rest carry them.
TEST(Hash, GivesThePublishedValues) {
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2ull);
  EXPECT_EQ(digest(""), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, SeedsChangeTheValue) {
  EXPECT_NE(hash64("trireme", 1), hash64("trireme", 2));
}

TEST(Hash, AStreamInPiecesHasTheDigestOfTheWhole) {
  const unsigned seed = testing::test_seed();
  SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  std::string text(300000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  Digest stream;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t part = std::min<std::size_t>(random() % 5000, text.size() - at);
    stream.add(std::as_bytes(std::span(text).subspan(at, part)));
    at += part;
  }
  EXPECT_EQ(stream.hex(), digest(text));
  EXPECT_EQ(Digest().hex(), digest(""));
}

}  // namespace
}  // namespace trireme
