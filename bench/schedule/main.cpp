// How long a launch takes to plan and prove: build, lower and verify for many ranks. Prints a bench/results file.
//
//   trireme_schedule_bench > bench/results/schedule.json
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "schedule/build.h"
#include "schedule/lower.h"
#include "schedule/rank_classes.h"
#include "schedule/verify.h"

namespace {

using namespace trireme::schedule;

constexpr int kUnits = 100, kRounds = 16;

ChainSpec make_chain(const Sharding& sharding, int shard_ranks) {
  ChainSpec chain;
  for (int u = 0; u < kUnits; ++u) {
    const std::string name = "unit" + std::to_string(u);
    for (const char* part : {".decay", ".no_decay"}) {
      chain.groups.push_back({.name = name + part,
                              .numel = std::int64_t{256} * shard_ranks * (part[1] == 'd' ? 64 : 1),
                              .shards_parameters = sharding.parameters,
                              .shards_gradients = sharding.gradients,
                              .shards_optimizer = sharding.optimizer});
    }
    const bool head = u + 1 == kUnits;
    chain.units.push_back({.name = name,
                           .reads = {2 * u, 2 * u + 1},
                           .gradients = {2 * u, 2 * u + 1},
                           .output_bytes = head ? 0 : 1 << 24,
                           .saved_bytes = head ? 0 : 1 << 27,
                           .forward_workspace_bytes = 1 << 22,
                           .backward_workspace_bytes = 1 << 23});
  }
  return chain;
}

double seconds_of(int ranks, const Sharding& sharding, int ragged, std::size_t& instructions) {
  const ChainSpec chain = make_chain(sharding, ranks);
  const Options options{.world_size = ranks, .num_micro_batches = kRounds * ranks - ragged};
  const auto start = std::chrono::steady_clock::now();
  std::vector<Program> programs;
  const std::vector<int> ranks_of_classes = representative_ranks(options);
  for (const int rank : ranks_of_classes) {
    programs.push_back(lower(build_schedule(chain, options, rank), options));
  }
  const std::vector<Finding> findings = verify_some(chain, options, ranks_of_classes, programs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!findings.empty()) {
    std::fprintf(stderr, "a finding: %s\n", findings.front().what.c_str());
    std::exit(1);
  }
  instructions = programs.front().instructions.size();
  return seconds;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "not known";
}

}  // namespace

int main() {
  std::printf("{\n  \"bench\": \"Planning and proving a launch\",\n");
  std::printf("  \"command\": \"build/bench/schedule/trireme_schedule_bench\",\n");
  std::printf("  \"machine\": {\"processor\": \"%s\", \"threads\": 1},\n  \"rows\": [", processor().c_str());
  const struct {
    const char* name;
    Sharding sharding;
  } rows[] = {{"ddp", {}}, {"full_shard", {.parameters = true, .gradients = true, .optimizer = true}}};
  const char* separator = "";
  for (const auto& row : rows) {
    for (const int ranks : {8, 4096}) {
      for (const int ragged : {0, ranks / 3}) {
        std::vector<double> seconds;
        std::size_t instructions = 0;
        for (int i = 0; i < 3; ++i) seconds.push_back(seconds_of(ranks, row.sharding, ragged, instructions));
        std::sort(seconds.begin(), seconds.end());
        std::printf(
            "%s\n    {\"strategy\": \"%s\", \"ranks\": %d, \"last round\": \"%s\", \"units\": %d, \"micro-batches a "
            "rank\": %d, \"instructions a rank\": %zu, \"s\": %.2f, \"promised\": \"< 10\"}",
            separator, row.name, ranks, ragged == 0 ? "full" : "ragged", kUnits, kRounds, instructions, seconds[1]);
        separator = ",";
      }
    }
  }
  std::printf(
      "\n  ],\n  \"note\": \"Build, lower and verify the programs of every class of ranks. Median of 3.\"\n}\n");
  return 0;
}
