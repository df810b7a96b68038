// The agent's protocol: frames, messages, and what arrives that is neither.
#include "comm/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "comm/message.h"
#include "support/expect_error.h"

namespace trireme::comm {
namespace {

using testing::expect_error;
using Op = Message::Op;

struct SocketPair {
  int ends[2];
  SocketPair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0); }
  ~SocketPair() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
};

TEST(Wire, FramesArriveWholeAndInOrder) {
  SocketPair pair;
  const std::string large(3'000'000, 'x');
  std::thread writer([&] {
    EXPECT_TRUE(write_frame(pair.ends[0], "one"));
    EXPECT_TRUE(write_frame(pair.ends[0], ""));
    EXPECT_TRUE(write_frame(pair.ends[0], large));
    ::shutdown(pair.ends[0], SHUT_WR);
  });
  EXPECT_EQ(read_frame(pair.ends[1]), "one");
  EXPECT_EQ(read_frame(pair.ends[1]), "");
  EXPECT_EQ(read_frame(pair.ends[1]), large);
  EXPECT_EQ(read_frame(pair.ends[1]), std::nullopt);
  writer.join();
}

TEST(Wire, AClosedOrOversizedStreamIsEmptyNotACrash) {
  SocketPair cut;
  ::send(cut.ends[0], "\x10\0\0\0half", 8, 0);
  ::shutdown(cut.ends[0], SHUT_WR);
  EXPECT_EQ(read_frame(cut.ends[1]), std::nullopt);
  SocketPair oversized;
  ::send(oversized.ends[0], "\xff\xff\xff\xff", 4, 0);
  EXPECT_EQ(read_frame(oversized.ends[1]), std::nullopt);
  SocketPair gone;
  ::shutdown(gone.ends[1], SHUT_RDWR);
  EXPECT_FALSE(write_frame(gone.ends[0], "nobody reads this"));  // an error, no SIGPIPE
  EXPECT_FALSE(write_frame(gone.ends[0], std::string(kMaxFrameBytes + 1, 'x')));
}

TEST(Wire, TheReaderTakesFramesApartHoweverTheyArrive) {
  const std::string stream = frame("first") + frame("") + frame("third");
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameReader reader;
    std::vector<std::string> frames;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.feed(stream.data() + at, std::min(piece, stream.size() - at));
      while (const auto json = reader.next()) frames.push_back(*json);
    }
    EXPECT_EQ(frames, (std::vector<std::string>{"first", "", "third"})) << "pieces of " << piece;
  }
}

TEST(Wire, TheReaderRefusesAnOversizedFrameBeforeItArrives) {
  FrameReader reader;
  reader.feed("\x01\0\0\x01", 4);  // 16 MiB + 1
  expect_error(1115, [&] { reader.next(); });
}

TEST(Messages, SurviveTheWay) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const Message set = decode(encode({.op = Op::set, .key = "a/\"b\n", .value = bytes}));
  EXPECT_EQ(set.op, Op::set);
  EXPECT_EQ(set.key, "a/\"b\n");
  EXPECT_EQ(set.value, bytes);
  const Message get = decode(encode({.op = Op::get, .key = "k", .id = 1'000'000'000'000}));
  EXPECT_EQ(get.op, Op::get);
  EXPECT_EQ(get.id, 1'000'000'000'000);
  const RankFailure failure{3, 4002, "data/x:7", "zweiunddreißig \"bad\" records", "mend them"};
  const Message broken = decode(encode({.op = Op::broken, .failure = failure}));
  EXPECT_EQ(broken.op, Op::broken);
  EXPECT_EQ(broken.failure.rank, 3);
  EXPECT_EQ(broken.failure.code, 4002);
  EXPECT_EQ(broken.failure.place, failure.place);
  EXPECT_EQ(broken.failure.message, failure.message);
  EXPECT_EQ(broken.failure.remedy, failure.remedy);
  for (const Op op : {Op::bye, Op::missing, Op::check, Op::value, Op::failure}) {
    EXPECT_EQ(decode(encode({.op = op})).op, op);
  }
}

// An error message may quote a corrupt file.
TEST(Messages, TextThatIsNoUtf8IsSentReadable) {
  const Message message = decode(encode({.op = Op::failure, .failure = {.message = "bad byte \xff here"}}));
  EXPECT_NE(message.failure.message.find("bad byte"), std::string::npos);
  EXPECT_NE(message.failure.message.find("here"), std::string::npos);
}

TEST(Messages, AnythingElseIsAnError) {
  for (const char* text : {"", "null", "7", "\"set\"", "[]", "{", "{}", R"({"op":1})", R"({"op":"format"})",
                           R"({"op":"set","key":"k"})", R"({"op":"set","key":"k","value":"abc"})",
                           R"({"op":"set","key":"k","value":"GG"})", R"({"op":"get","key":"k","id":1.5})",
                           R"({"op":"get","key":"k","id":"1"})", R"({"op":"get","key":[[[]]],"id":1})",
                           R"({"op":"break","rank":99999999999,"code":1,"place":"","message":"","remedy":""})",
                           R"({"op":"failure","code":-7,"place":"","message":"","remedy":""})",
                           "{\"op\":\"bye\"}trailing", "{\"op\":\"\xff\"}"}) {
    expect_error(1115, [&] { decode(text); });
  }
}

// Nesting is refused before it can take memory or stack.
TEST(Messages, DeepNestingIsRefused) {
  const std::string deep(kMaxFrameBytes, '[');
  expect_error(1115, [&] { decode(deep); });
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  expect_error(1115, [&] { decode(objects); });
}

TEST(Messages, RandomDamageNeverCrashes) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::string whole = encode({.op = Op::broken, .failure = {1, 4002, "p", "m", "r"}});
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) text.resize(random() % text.size());
    try {
      decode(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), 1115);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace trireme::comm
