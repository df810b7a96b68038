#include "monitor/lossy_writer.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace trireme::monitor {
namespace {

// Bytes written; errno is 0 if that is all.
std::size_t write_some(int descriptor, std::string_view bytes) {
  std::size_t done = 0;
  errno = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return done;
    done += static_cast<std::size_t>(written);
  }
  errno = 0;
  return done;
}

// Takes the last `bytes` back; false for a pipe or a terminal.
bool cut_off(int descriptor, std::size_t bytes) {
  const off_t end = ::lseek(descriptor, 0, SEEK_END);
  return end >= static_cast<off_t>(bytes) && ::ftruncate(descriptor, end - static_cast<off_t>(bytes)) == 0 &&
         ::lseek(descriptor, 0, SEEK_END) >= 0;
}

}  // namespace

LossyWriter::LossyWriter(int descriptor, std::string name, std::string torn_end)
    : descriptor_(descriptor), name_(std::move(name)), torn_end_(std::move(torn_end)) {}

LossyWriter::~LossyWriter() {
  if (lost_ > 0) log::warn(name_ + ": " + std::to_string(lost_) + " lines were lost");
}

void LossyWriter::write(std::string_view line) {
  std::string bytes = torn_ ? torn_end_ : "";
  bytes += line;
  const std::size_t done = write_some(descriptor_, bytes);
  const int number = errno;
  if (number == 0) {
    torn_ = false;
    return;
  }
  if (done > 0 && !cut_off(descriptor_, done)) torn_ = !std::string_view(bytes).substr(0, done).ends_with(torn_end_);
  if (lost_++ == 0) {
    log::warn(name_ + ": cannot write: " + std::generic_category().message(number) +
              "; lines are lost, the run goes on");
  }
}

}  // namespace trireme::monitor
