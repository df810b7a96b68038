#include "monitor/event_file.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::monitor {
namespace {

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// The examples of RFC 3720, B.4, and the catalogue's check value.
TEST(EventFile, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string rising, falling;
  for (char byte = 0; byte < 32; ++byte) {
    rising.push_back(byte);
    falling.insert(falling.begin(), byte);
  }
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);
}

// What TensorBoard 2.21's RecordWriter writes.
TEST(EventFile, RecordsAreFramedAsTensorBoardFramesThem) {
  EXPECT_EQ(hex(framed("hello, oars")), "0b000000000000008615f50468656c6c6f2c206f617273a0279e07");
  EXPECT_EQ(hex(framed("")), "000000000000000029039807d8ea82a2");
}

// What TensorBoard 2.21's event_pb2 serialises.
TEST(EventFile, MessagesAreThoseOfItsProtobuf) {
  const Scalar loss[] = {{"train/loss", 2.5}};
  EXPECT_EQ(hex(scalars_event(1.5, 7, loss)), "09000000000000f83f10072a130a110a0a747261696e2f6c6f73731500002040");
  EXPECT_EQ(hex(start_event(1.5, 300)), "09000000000000f83f10ac023a020801");
}

TEST(EventFile, ValuesBeyondFp32BecomeInfinite) {
  const auto value_of = [](double value) {
    const Scalar scalar[] = {{"x", value}};
    const std::string bytes = hex(scalars_event(0, 0, scalar));
    return bytes.substr(bytes.size() - 8);
  };
  EXPECT_EQ(value_of(1e300), "0000807f");
  EXPECT_EQ(value_of(-1e300), "000080ff");
  EXPECT_EQ(value_of(std::numeric_limits<double>::infinity()), "0000807f");
  EXPECT_EQ(value_of(0.1), "cdcccc3d");
}

}  // namespace
}  // namespace trireme::monitor
