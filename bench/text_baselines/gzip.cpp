#include "text_baselines/gzip.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include "base/error.h"

extern char** environ;

namespace trireme::baselines {
namespace {

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(3030, "gzip -9", number == 0 ? what : what + ": " + std::generic_category().message(number),
              "install gzip");
}

// A file without a name: both ends are files, so that neither side ever waits for the other.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File make_file() {
  File file(std::tmpfile(), std::fclose);
  if (!file) fail("cannot make a temporary file", errno);
  return file;
}

}  // namespace

std::uint64_t gzip_size(const std::function<void(const std::function<void(std::string_view)>&)>& feed) {
  const File text = make_file(), packed = make_file();
  feed([&](std::string_view piece) {
    if (std::fwrite(piece.data(), 1, piece.size(), text.get()) != piece.size()) fail("cannot write the text", errno);
  });
  if (std::fflush(text.get()) != 0 || std::fseek(text.get(), 0, SEEK_SET) != 0) fail("cannot write the text", errno);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(text.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(packed.get()), STDOUT_FILENO);
  const char* arguments[] = {"gzip", "-9", "-c", nullptr};
  pid_t child = -1;
  const int number = ::posix_spawnp(&child, "gzip", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (number != 0) fail("cannot start", number);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("cannot wait for it", errno);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("ended with status " + std::to_string(status), 0);
  if (std::fseek(packed.get(), 0, SEEK_END) != 0) fail("cannot read its output", errno);
  return static_cast<std::uint64_t>(std::ftell(packed.get()));
}

}  // namespace trireme::baselines
