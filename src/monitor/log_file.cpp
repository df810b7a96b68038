#include "monitor/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace trireme::monitor {

LogFile::LogFile(const std::filesystem::path& path, IfThere if_there) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (if_there == IfThere::refuse ? O_EXCL : 0);
  descriptor_ = ::open(path.c_str(), flags, 0666);
  if (descriptor_ < 0) {
    throw Error(3021, path.string(), "cannot open: " + std::generic_category().message(errno),
                "check that the folder can be written, or choose another output_dir");
  }
}

LogFile::~LogFile() {
  ::close(descriptor_);
}

}  // namespace trireme::monitor
