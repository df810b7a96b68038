#include "comm/network.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "base/error.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

constexpr milliseconds kConnectLimit{1000};

Addresses resolve(const std::string& host, int port, int socket_type) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    throw Error(3052, "environment",
                "MASTER_ADDR is \"" + host + "\", which cannot be resolved: " + ::gai_strerror(error),
                "give the address of rank 0's machine");
  }
  return {found, ::freeaddrinfo};
}

class Socket {
 public:
  Socket(int family, int type) : fd_(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool connects(const addrinfo& target) {
  const Socket socket(target.ai_family, SOCK_STREAM);
  if (socket.fd() < 0) return false;
  if (::connect(socket.fd(), target.ai_addr, target.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wait{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
  if (::poll(&wait, 1, static_cast<int>(kConnectLimit.count())) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

std::string as_numbers(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

std::string local_address_toward(const std::string& host) {
  const Addresses found = resolve(host, 9, SOCK_DGRAM);
  for (const addrinfo* target = found.get(); target != nullptr; target = target->ai_next) {
    // Connecting a datagram socket sends nothing, but chooses the route.
    const Socket socket(target->ai_family, SOCK_DGRAM);
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    auto* address = reinterpret_cast<sockaddr*>(&local);
    const bool routed = socket.fd() >= 0 && ::connect(socket.fd(), target->ai_addr, target->ai_addrlen) == 0 &&
                        ::getsockname(socket.fd(), address, &size) == 0;
    if (routed) return as_numbers(address, size);
  }
  throw Error(3052, "environment", "MASTER_ADDR is \"" + host + "\", to which this machine has no route",
              "give the address of rank 0's machine");
}

std::optional<std::string> await_listener(const std::string& host, int port, milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  milliseconds pause{5};
  const Addresses found = resolve(host, port, SOCK_STREAM);
  for (;;) {
    for (const addrinfo* target = found.get(); target != nullptr; target = target->ai_next) {
      if (connects(*target)) return as_numbers(target->ai_addr, target->ai_addrlen);
    }
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(100));
  }
}

}  // namespace trireme::comm
