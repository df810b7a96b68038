// A worker's environment variables, as torchrun, srun scripts, Kubernetes and our agent set them.
#include <fcntl.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "comm/job.h"

namespace trireme::comm {
namespace {

constexpr int kMaxWorldSize = 1 << 20;
constexpr const char* kHowToStart =
    "`trireme launch` and torchrun set all of them; by hand set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
    "MASTER_PORT";

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

[[noreturn]] void missing(const char* name, const std::string& why) {
  throw Error(3050, "environment", std::string(name) + " is not set, but " + why, kHowToStart);
}

[[noreturn]] void odd(const char* name, const std::string& value, const std::string& expected,
                      const std::string& remedy = kHowToStart) {
  throw Error(3051, "environment", std::string(name) + " is \"" + value + "\", which is not " + expected, remedy);
}

// Decimal digits only, within [low, high]; empty if the variable is unset.
std::optional<int> number(const char* name, int low, int high, const std::string& expected,
                          const std::string& remedy = kHowToStart) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < low || value > high)
    odd(name, *text, expected, remedy);
  return value;
}

void read_ranks(WorkerEnvironment& environment) {
  const auto world_size = number("WORLD_SIZE", 1, kMaxWorldSize, "a number of ranks");
  const auto rank = number("RANK", 0, kMaxWorldSize - 1, "a rank");
  if (!rank && !world_size) {
    for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "TRIREME_CONTROL_FD"}) {
      if (variable(name)) missing("RANK", std::string(name) + " is");
    }
    return;
  }
  if (!rank) missing("RANK", "WORLD_SIZE is");
  if (!world_size) missing("WORLD_SIZE", "RANK is");
  if (*rank >= *world_size) odd("RANK", std::to_string(*rank), "below WORLD_SIZE, " + std::to_string(*world_size));
  environment.rank = *rank;
  environment.world_size = *world_size;

  const auto local_size =
      number("LOCAL_WORLD_SIZE", 1, *world_size, "a number of ranks on this node, at most WORLD_SIZE");
  environment.local_world_size = local_size.value_or(*world_size);
  const bool one_node = environment.local_world_size == *world_size;
  const auto local_rank = number("LOCAL_RANK", 0, environment.local_world_size - 1,
                                 "below LOCAL_WORLD_SIZE, " + std::to_string(environment.local_world_size));
  if (!local_rank && !one_node)
    missing("LOCAL_RANK", "there are several nodes: LOCAL_WORLD_SIZE differs from WORLD_SIZE");
  environment.local_rank = local_rank.value_or(*rank);
  if (!local_size && environment.local_rank != *rank) {
    missing("LOCAL_WORLD_SIZE", "LOCAL_RANK differs from RANK, so there are several nodes");
  }
}

void read_master(WorkerEnvironment& environment) {
  auto address = variable("MASTER_ADDR");
  if (!address) missing("MASTER_ADDR", "WORLD_SIZE is " + std::to_string(environment.world_size));
  if (address->starts_with('[') && address->ends_with(']')) address = address->substr(1, address->size() - 2);  // [::1]
  const bool is_name = !address->empty() && address->find_first_of("/ \t\n") == std::string::npos;
  if (!is_name)
    odd("MASTER_ADDR", *address, "a host name or address", "give the address of rank 0's machine alone, as 10.0.0.1");
  environment.master_addr = *address;
  const auto port = number("MASTER_PORT", 1, 65535, "a port, 1 to 65535",
                           "set it to a free port of rank 0's machine (Kubernetes overwrites MASTER_PORT where a "
                           "service is called \"master\")");
  if (!port) missing("MASTER_PORT", "WORLD_SIZE is " + std::to_string(environment.world_size));
  environment.master_port = *port;
}

}  // namespace

WorkerEnvironment read_worker_environment() {
  WorkerEnvironment environment;
  read_ranks(environment);
  const std::string expected = "an open descriptor";
  const std::string remedy = "it is set by `trireme launch` for its workers only; unset it";
  if (const auto fd = number("TRIREME_CONTROL_FD", 3, 1 << 20, expected, remedy)) {
    if (::fcntl(*fd, F_GETFD) < 0) odd("TRIREME_CONTROL_FD", std::to_string(*fd), expected, remedy);
    environment.control_fd = *fd;
  }
  if (environment.control_fd >= 0) {
    environment.master_addr = "127.0.0.1";
  } else if (environment.world_size > 1) {
    read_master(environment);
  }
  return environment;
}

}  // namespace trireme::comm
