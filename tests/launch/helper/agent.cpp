// `trireme launch` for the tests, with the test worker in place of the product: agent N BEHAVIOUR [ARGUMENT...]
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "launch/agent.h"

int main(int argc, char** argv) {
  try {
    trireme::launch::LaunchOptions options{.nproc_per_node = std::atoi(argv[1]), .command = {argv + 2, argv + argc}};
    const char* program = std::getenv("TEST_PROGRAM");
    const char* grace = std::getenv("TEST_GRACE_SECONDS");
    options.program = program != nullptr ? program : TRIREME_TEST_WORKER;
    if (grace != nullptr) options.grace_seconds = std::atof(grace);
    return trireme::launch::run_agent(options);
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
