#include <gtest/gtest.h>

#include "data/tokenizer_forms.h"

namespace trireme::data {
namespace {

std::string nfc(std::string_view text) {
  return std::string(UnicodeNormalizer(UnicodeForm::nfc).normalize(text));
}

// Marks compose with their letter, in canonical order, unless another of their class stands between (UAX 15).
TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("xe\u0301y e\u0301"), "x\u00E9y \u00E9");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(nfc("a\u0304\u0301"), "\u0101\u0301");
  EXPECT_EQ(nfc("\u0301a"), "\u0301a");
  EXPECT_EQ(nfc("\u212B\u2126"), "\u00C5\u03A9");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");        // excluded from composition
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");  // Hangul
  EXPECT_EQ(nfc("\uAC00\u11A8x"), "\uAC01x");
  EXPECT_EQ(nfc("\u09C7\u09BE"), "\u09CB");  // a second half that is no mark of a class
  EXPECT_EQ(nfc("\U0002F800"), "\u4E3D");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
}

// Text in normal form is given back as it is, without a copy.
TEST(Nfc, NormalTextIsNotCopied) {
  for (const std::string text : {"", "plain", "caf\u00E9 \u4E2D\u6587 \uAC00 \U0001F600"}) {
    UnicodeNormalizer normalizer(UnicodeForm::nfc);
    EXPECT_EQ(normalizer.normalize(text).data(), text.data());
  }
}

// Marks newer than the tables of tokenizers neither move nor let others pass.
TEST(Nfc, NewerMarksStayWhereTheyAre) {
  EXPECT_EQ(nfc("a\u1DF9\u0323"), "a\u1DF9\u0323");
  EXPECT_EQ(nfc("e\u1ABF\u0301"), "e\u1ABF\u0301");
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

}  // namespace
}  // namespace trireme::data
