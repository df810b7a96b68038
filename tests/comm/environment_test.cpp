// What a worker makes of its environment: every odd value is one error that names the variable and the value.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "comm/job.h"
#include "support/expect_error.h"

namespace trireme::comm {
namespace {

using testing::expect_error;
using Variables = std::map<std::string, std::string>;

constexpr const char* kNames[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",        "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR", "MASTER_PORT", "TRIREME_CONTROL_FD"};

// Replaces the worker's variables for as long as it lives.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  Variables before_;
};

// A complete one, with changes; an empty value removes the variable.
Variables complete(const Variables& changes = {}) {
  Variables variables = {{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  return variables;
}

WorkerEnvironment read(const Variables& variables) {
  const Environment environment(variables);
  return read_worker_environment();
}

void expect_refused(int code, const Variables& variables, const std::string& name, const std::string& value = "") {
  const std::string text = expect_error(code, [&] { read(variables); });
  EXPECT_NE(text.find(name), std::string::npos) << text;
  EXPECT_NE(text.find(value), std::string::npos) << text;
  EXPECT_NE(text.find('\n'), std::string::npos) << "no remedy: " << text;
}

TEST(WorkerEnvironment, NothingSetIsOneRankAlone) {
  for (const Variables& variables : {Variables{}, Variables{{"MASTER_PORT", "tcp://10.0.0.1:29500"}}}) {
    const WorkerEnvironment environment = read(variables);
    EXPECT_EQ(environment.rank, 0);
    EXPECT_EQ(environment.world_size, 1);
    EXPECT_EQ(environment.control_fd, -1);
  }
}

TEST(WorkerEnvironment, ReadsACompleteOne) {
  const WorkerEnvironment environment = read(complete());
  EXPECT_EQ(environment.rank, 1);
  EXPECT_EQ(environment.world_size, 2);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.local_world_size, 2);
  EXPECT_EQ(environment.master_addr, "10.0.0.1");
  EXPECT_EQ(environment.master_port, 29500);
}

TEST(WorkerEnvironment, LocalVariablesMayBeMissingOnOneNode) {
  EXPECT_EQ(read(complete({{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}})).local_rank, 1);
  EXPECT_EQ(read(complete({{"LOCAL_WORLD_SIZE", ""}})).local_world_size, 2);
  EXPECT_EQ(read(complete({{"LOCAL_RANK", ""}})).local_rank, 1);
}

TEST(WorkerEnvironment, SeveralNodesNeedThem) {
  expect_refused(3050, complete({{"WORLD_SIZE", "4"}, {"LOCAL_RANK", ""}}), "LOCAL_RANK");
  expect_refused(3050, complete({{"WORLD_SIZE", "4"}, {"RANK", "3"}, {"LOCAL_WORLD_SIZE", ""}}), "LOCAL_WORLD_SIZE");
  const WorkerEnvironment second_node = read(complete({{"WORLD_SIZE", "4"}, {"RANK", "3"}}));
  EXPECT_EQ(second_node.local_rank, 1);
}

TEST(WorkerEnvironment, HalfOfItIsRefused) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    expect_refused(3050, complete({{name, ""}}), name);
  }
  expect_refused(3050, {{"LOCAL_RANK", "0"}}, "RANK");
  expect_refused(3050, {{"RANK", "0"}}, "WORLD_SIZE");
  expect_refused(3050, {{"TRIREME_CONTROL_FD", "5"}}, "RANK");
}

TEST(WorkerEnvironment, NumbersAreNumbers) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
    for (const std::string value : {"x", "-1", "1.0", " 1", "1 ", "0x1", "99999999999999999999", "1e3"}) {
      expect_refused(3051, complete({{name, value}}), name, "\"" + value + "\"");
    }
    Variables empty = complete();
    empty[name] = "";
    expect_refused(3051, empty, name, "\"\"");
  }
}

TEST(WorkerEnvironment, RanksLieWithinTheirWorld) {
  expect_refused(3051, complete({{"RANK", "2"}}), "RANK", "\"2\"");
  expect_refused(3051, complete({{"LOCAL_RANK", "2"}}), "LOCAL_RANK", "\"2\"");
  expect_refused(3051, complete({{"LOCAL_WORLD_SIZE", "3"}}), "LOCAL_WORLD_SIZE", "\"3\"");
  expect_refused(3051, complete({{"WORLD_SIZE", "0"}}), "WORLD_SIZE", "\"0\"");
  expect_refused(3051, complete({{"WORLD_SIZE", "2000000"}}), "WORLD_SIZE", "\"2000000\"");
}

// Kubernetes sets MASTER_PORT so for a service that is called "master".
TEST(WorkerEnvironment, APortIsAPort) {
  for (const std::string value : {"tcp://10.0.0.1:29500", "0", "65536", "-29500", "http"}) {
    expect_refused(3051, complete({{"MASTER_PORT", value}}), "MASTER_PORT", value);
  }
}

TEST(WorkerEnvironment, AnAddressIsAnAddress) {
  for (const std::string value : {"tcp://10.0.0.1", "10.0.0.1/24", " ", "a b"}) {
    expect_refused(3051, complete({{"MASTER_ADDR", value}}), "MASTER_ADDR", value);
  }
  EXPECT_EQ(read(complete({{"MASTER_ADDR", "[::1]"}})).master_addr, "::1");
  EXPECT_EQ(read(complete({{"MASTER_ADDR", "node-7.cluster"}})).master_addr, "node-7.cluster");
}

TEST(WorkerEnvironment, TheControlDescriptorIsOpen) {
  expect_refused(3051, complete({{"TRIREME_CONTROL_FD", "x"}}), "TRIREME_CONTROL_FD", "\"x\"");
  expect_refused(3051, complete({{"TRIREME_CONTROL_FD", "1"}}), "TRIREME_CONTROL_FD", "\"1\"");
  expect_refused(3051, complete({{"TRIREME_CONTROL_FD", "987"}}), "TRIREME_CONTROL_FD", "\"987\"");
  const int fd = ::open("/dev/null", O_RDONLY);
  const WorkerEnvironment environment =
      read(complete({{"TRIREME_CONTROL_FD", std::to_string(fd)}, {"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}));
  EXPECT_EQ(environment.control_fd, fd);
  ::close(fd);
}

TEST(WorkerEnvironment, AWorldOfOneNeedsNoMaster) {
  const WorkerEnvironment environment = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "tcp://x"}});
  EXPECT_EQ(environment.world_size, 1);
}

}  // namespace
}  // namespace trireme::comm
