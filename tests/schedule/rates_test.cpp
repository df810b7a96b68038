#include "schedule/rates.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace trireme::schedule {
namespace {

class RatesFile : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) const {
    const auto path = folder_.path() / "rates.json";
    std::ofstream(path) << text;
    return path;
  }
  // The five numbers, with one of them replaced by `text`; nothing where that is empty.
  std::string numbers(const std::string& name = {}, const std::string& text = {}) const {
    std::string object;
    for (const std::string key : {"flops_per_s", "bytes_moved_per_s", "optimizer_bytes_per_s", "collective_latency_s",
                                  "collective_bytes_per_s"}) {
      if (key == name && text.empty()) continue;
      object += (object.empty() ? "{" : ",") + ("\"" + key + "\":") + (key == name ? text : "2e3");
    }
    return object + "}";
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(RatesFile, HoldsTheNumbersAndSaysWhereTheyComeFrom) {
  std::string text = numbers("collective_latency_s", "0");
  text.insert(1, "\"machine\": \"node 7\", ");
  const Rates rates = read_rates(write(text));
  EXPECT_EQ(rates.flops_per_s, 2000);
  EXPECT_EQ(rates.bytes_moved_per_s, 2000);
  EXPECT_EQ(rates.optimizer_bytes_per_s, 2000);
  EXPECT_EQ(rates.collective_latency_s, 0);
  EXPECT_EQ(rates.collective_bytes_per_s, 2000);
  EXPECT_NE(rates.words().find("rates.json (node 7)"), std::string::npos);
  EXPECT_EQ(rates.words().find("uncalibrated"), std::string::npos);
}

// Without a link of its own, a copy reads and writes memory.
TEST_F(RatesFile, MayKnowTheLinkToTheHost) {
  EXPECT_EQ(read_rates(write(numbers())).copy_bytes_per_s(), 1000);
  std::string text = numbers();
  text.insert(1, "\"host_copy_bytes_per_s\": 700, ");
  EXPECT_EQ(read_rates(write(text)).copy_bytes_per_s(), 700);
}

TEST_F(RatesFile, DefaultsSayThatNobodyMeasuredThem) {
  EXPECT_EQ(Rates{}.words().find("uncalibrated"), 0u);
}

TEST_F(RatesFile, WrongOnesAreRefusedByName) {
  const auto error = [&](const std::string& text) {
    return testing::expect_error(2290, [&] { read_rates(write(text)); });
  };
  EXPECT_NE(error("[]").find("no object"), std::string::npos);
  EXPECT_NE(error("{").find("no JSON"), std::string::npos);
  for (const std::string name : {"flops_per_s", "bytes_moved_per_s", "optimizer_bytes_per_s", "collective_latency_s",
                                 "collective_bytes_per_s"}) {
    EXPECT_NE(error(numbers(name)).find("has no " + name), std::string::npos);
    for (const std::string value : {"-1", "\"fast\"", "null", "[1]"}) {
      EXPECT_NE(error(numbers(name, value)).find(name + " is " + value), std::string::npos);
    }
  }
  error(numbers("flops_per_s", "0"));
  error(numbers("flops_per_s", "1e999"));
  error(numbers("flops_per_s", "2e18"));
  error(numbers("collective_bytes_per_s", "0.5"));
  error(numbers("collective_latency_s", "3601"));
  std::string other = numbers();
  other.insert(1, "\"flop\": 1, ");
  EXPECT_NE(error(other).find("\"flop\""), std::string::npos);
  other = numbers();
  other.insert(1, "\"machine\": 7, ");
  EXPECT_NE(error(other).find("machine"), std::string::npos);
}

TEST_F(RatesFile, ThatIsMissingIsNamed) {
  EXPECT_NE(testing::expect_error(2290, [] { read_rates("/nonexistent/rates.json"); }).find("/nonexistent/rates.json"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::schedule
