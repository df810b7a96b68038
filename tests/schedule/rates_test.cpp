#include "schedule/rates.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>

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

Rates closer() {
  Rates rates{.flops_per_s = 1, .bytes_moved_per_s = 2, .optimizer_bytes_per_s = 3, .collective_latency_s = 0.25};
  rates.collective_bytes_per_s = 5;
  rates.loaded_collective_bytes_per_s = 6;
  rates.fp32 = {.small = 7, .medium = 8, .large = 9, .attention = 10};
  rates.half = {.small = 11, .medium = 12, .large = 13, .attention = 14};
  rates.host_copy_bytes_per_s = 15;
  rates.host_optimizer_bytes_per_s = 16;
  rates.of_device = true;
  rates.measured_on = {"some processor", 3, "some build"};
  return rates;
}

TEST_F(RatesFile, IsReadAsItWasWritten) {
  const Rates rates = closer(), read = read_rates(write(to_json(rates, "node 7")));
  EXPECT_EQ(read.measured_on, rates.measured_on);
  EXPECT_EQ(to_json(read, "node 7"), to_json(rates, "node 7"));
  EXPECT_EQ(read.loaded_collective_bytes_per_s, 6);
  EXPECT_EQ(read.half.large, 13);
  EXPECT_EQ(read.host_copy_bytes_per_s, 15);
  EXPECT_EQ(read.host_optimizer_bytes_per_s, 16);
  EXPECT_TRUE(read.of_device);
  EXPECT_FALSE(read_rates(write(numbers())).of_device);
  EXPECT_NE(read.words().find("node 7"), std::string::npos);
}

TEST_F(RatesFile, HasRatesBySizeAndTypeOrOneForAll) {
  const Rates rates = closer();
  EXPECT_EQ(rates.product_flops_per_s(4, 255), 7);
  EXPECT_EQ(rates.product_flops_per_s(4, 256), 8);
  EXPECT_EQ(rates.product_flops_per_s(4, 1023), 8);
  EXPECT_EQ(rates.product_flops_per_s(4, 1024), 9);
  EXPECT_EQ(rates.product_flops_per_s(2, 64), 11);
  EXPECT_EQ(rates.attention_flops_per_s(2), 14);
  EXPECT_EQ(rates.gradient_bytes_per_s(), 6);
  EXPECT_EQ(rates.update_bytes_per_s(true), 16);
  EXPECT_EQ(rates.update_bytes_per_s(false), 3);
  const Rates plain{.flops_per_s = 100, .collective_bytes_per_s = 200};
  EXPECT_EQ(plain.product_flops_per_s(4, 64), 100);
  EXPECT_EQ(plain.attention_flops_per_s(2), 100);
  EXPECT_EQ(plain.gradient_bytes_per_s(), 200);
  EXPECT_EQ(plain.update_bytes_per_s(true), plain.optimizer_bytes_per_s);
}

TEST_F(RatesFile, HostileOnesAreRefused) {
  const auto error = [&](const std::string& text) {
    return testing::expect_error(2290, [&] { read_rates(write(text)); });
  };
  const auto with = [&](const std::string& more) {
    std::string text = numbers();
    return text.insert(1, more + ", ");
  };
  EXPECT_NE(error(with(R"("fp32": 7)")).find("not an object"), std::string::npos);
  EXPECT_NE(error(with(R"("fp32": {"small": 1})")).find("has no medium"), std::string::npos);
  EXPECT_NE(error(with(R"("half": {"small": 1, "medium": 2, "large": -3, "attention": 4})")).find("large is -3"),
            std::string::npos);
  EXPECT_NE(error(with(R"("half": {"small": 1, "medium": 2, "large": 3, "attention": 4, "x": 5})")).find("\"x\""),
            std::string::npos);
  for (const std::string threads : {"0", "-1", "1.5", "65537", "1e30", "\"2\""}) {
    EXPECT_NE(error(with("\"threads\": " + threads)).find("threads is"), std::string::npos) << threads;
  }
  EXPECT_NE(error(with(R"("processor": ["a"])")).find("processor"), std::string::npos);
  EXPECT_NE(error(with(R"("device": 1)")).find("not true or false"), std::string::npos);
  EXPECT_NE(error(with("\"flops_per_s\": 5")).find("flops_per_s"), std::string::npos) << "a key twice";
  error(with("\"loaded_collective_bytes_per_s\": 0"));
  error(std::string(5000, '['));
  EXPECT_NE(error(with("\"machine\": \"" + std::string(70000, 'a') + "\"")).find("bytes"), std::string::npos);
  error(std::string("\xff\xfe\0{", 4));
}

// Sets a variable of the environment for its lifetime.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name), before_(value_of(name)) {
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  static std::optional<std::string> value_of(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  const char* name_;
  std::optional<std::string> before_;
};

TEST_F(RatesFile, IsFoundByProcessorThreadsAndBuild) {
  const testing::TemporaryFolder cache;
  const Variable home("XDG_CACHE_HOME", cache.path());
  const Rates rates = closer();
  EXPECT_TRUE(find_rates(rates.measured_on).source.empty()) << "nothing was measured yet";
  const auto file = rates_file(rates.measured_on);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << to_json(rates, "");
  EXPECT_EQ(find_rates(rates.measured_on).half.small, 11);
  for (const RatesKey& other :
       {RatesKey{"another processor", 3, "some build"}, RatesKey{"some processor", 4, "some build"},
        RatesKey{"some processor", 3, "another build"}}) {
    EXPECT_TRUE(find_rates(other).source.empty());
    EXPECT_NE(rates_file(other), file);
    std::filesystem::copy_file(file, rates_file(other));
    testing::expect_error(2291, [&] { find_rates(other); });
  }
}

TEST_F(RatesFile, ThatIsMissingIsNamed) {
  EXPECT_NE(testing::expect_error(2290, [] { read_rates("/nonexistent/rates.json"); }).find("/nonexistent/rates.json"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::schedule
