// The arguments of `trireme launch`.
#include "launch/command_line.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "support/expect_error.h"

namespace trireme::launch {
namespace {

using testing::expect_error;
using Words = std::vector<std::string>;

TEST(LaunchCommandLine, PassesTheWorkersArgumentsOnUntouched) {
  const LaunchOptions options = parse_command_line(
      Words{"--nproc-per-node", "2", "train", "c.yaml", "--dry-run", "training.max_steps=10", "--nnodes", "7", "a b"});
  EXPECT_EQ(options.nproc_per_node, 2);
  EXPECT_EQ(options.command, (Words{"train", "c.yaml", "--dry-run", "training.max_steps=10", "--nnodes", "7", "a b"}));
}

TEST(LaunchCommandLine, TakesTorchrunsSpellings) {
  for (const Words& words : {Words{"--nproc_per_node", "3"}, Words{"--nproc-per-node=3"}, Words{"--nproc_per_node=3"},
                             Words{"--standalone", "--nnodes=1:1", "--node_rank", "0", "--max-restarts=0",
                                   "--rdzv-backend", "c10d", "--rdzv_endpoint=localhost:0", "--nproc-per-node", "3"}}) {
    Words all = words;
    all.push_back("train");
    EXPECT_EQ(parse_command_line(all).nproc_per_node, 3) << words[0];
  }
}

TEST(LaunchCommandLine, HasDefaults) {
  const LaunchOptions options = parse_command_line(Words{"train"});
  EXPECT_EQ(options.nproc_per_node, 1);
  EXPECT_EQ(options.master_addr, "127.0.0.1");
  EXPECT_EQ(options.master_port, 0);
  EXPECT_EQ(options.grace_seconds, 30);
}

TEST(LaunchCommandLine, RefusesWhatIsNotThereYet) {
  for (const Words& words : {Words{"--nnodes", "2"}, Words{"--nnodes", "1:4"}, Words{"--node-rank", "1"},
                             Words{"--max-restarts", "3"}, Words{"--rdzv-conf", "x=1"}, Words{"--log_dir", "x"}}) {
    Words all = words;
    all.push_back("train");
    const std::string text = expect_error(2006, [&] { parse_command_line(all); });
    EXPECT_NE(text.find("not yet"), std::string::npos) << text;
    EXPECT_NE(text.find(words[0]), std::string::npos) << text;
  }
}

TEST(LaunchCommandLine, RefusesWrongValuesAndNames) {
  expect_error(2004, [] { parse_command_line(Words{"--nproc", "2", "train"}); });
  expect_error(2004, [] { parse_command_line(Words{"-n", "2", "train"}); });
  for (const std::string value : {"0", "-1", "two", "2.5", "", "99999999999", "2 "}) {
    expect_error(2005, [&] { parse_command_line(Words{"--nproc-per-node", value, "train"}); });
  }
  expect_error(2005, [] { parse_command_line(Words{"--nproc-per-node"}); });
  expect_error(2005, [] { parse_command_line(Words{"--standalone=yes", "train"}); });
  expect_error(2005, [] { parse_command_line(Words{"--master-port", "65536", "train"}); });
}

TEST(LaunchCommandLine, NeedsACommandThatWorkersCanRun) {
  expect_error(2007, [] { parse_command_line(Words{}); });
  expect_error(2007, [] { parse_command_line(Words{"--nproc-per-node", "2"}); });
  expect_error(2007, [] { parse_command_line(Words{"frobnicate"}); });
  expect_error(2007, [] { parse_command_line(Words{"train.py"}); });
}

TEST(LaunchCommandLine, CpuIsTheCoresThatThisProcessMayUse) {
  cpu_set_t before, one;
  sched_getaffinity(0, sizeof before, &before);
  EXPECT_EQ(resolve_nproc("cpu"), CPU_COUNT(&before));
  EXPECT_GE(resolve_nproc("auto"), 1);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof one, &one);
  EXPECT_EQ(resolve_nproc("cpu"), 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(LaunchCommandLine, HelpNamesEveryOptionThatDoesSomething) {
  const std::string help = launch_help();
  for (const char* name : {"--nproc-per-node", "--standalone", "--grace-seconds", "--master-port"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace trireme::launch
