#include "comm/shared_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kNonceSize = 32;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(kNoSharedMemory, "shared memory", what);
}

[[noreturn]] void refuse_with_errno(const char* call, int error = errno) {
  refuse(std::string(call) + ": " + std::strerror(error));
}

std::string random_hex() {
  std::array<unsigned char, kNonceSize / 2> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) refuse_with_errno("getrandom");
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

std::string this_host(int rank) {
  if (failpoint("comm.host", rank)) return "another";
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) refuse("/proc/sys/kernel/random/boot_id cannot be read");
  return boot;
}

std::string this_network() {
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) refuse_with_errno("/proc/self/ns/net");
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

// A name that begins with a zero byte: in no folder, and gone with its socket.
struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    const std::string path = "trireme-" + name;
    const std::size_t length = std::min(path.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, path.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t size;
};

Descriptor new_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) refuse_with_errno("socket");
  return socket;
}

// Who knows the addressee's nonce has it from the store of this job.
struct Greeting {
  char nonce[kNonceSize] = {};
  std::int32_t rank = -1;
};

bool is_for(const Greeting& greeting, const HostWord& word) {
  return std::string_view(greeting.nonce, kNonceSize) == word.nonce;
}

// With a descriptor beside it, if there is one.
bool send_greeting(const Descriptor& socket, const HostWord& to, int rank, int memory) {
  Greeting greeting{.rank = rank};
  std::memcpy(greeting.nonce, to.nonce.data(), std::min(to.nonce.size(), kNonceSize));
  iovec data{.iov_base = &greeting, .iov_len = sizeof greeting};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (memory >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  }
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof greeting);
}

struct Received {
  Greeting greeting;
  Descriptor memory;
};

bool wait_readable(int fd, steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

std::optional<Received> receive_greeting(const Descriptor& socket, steady_clock::time_point deadline) {
  if (!wait_readable(socket.get(), deadline)) return std::nullopt;
  Received received;
  iovec data{.iov_base = &received.greeting, .iov_len = sizeof(Greeting)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int memory = -1;
    std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
    received.memory = Descriptor(memory);
  }
  if (size != static_cast<ssize_t>(sizeof(Greeting))) return std::nullopt;
  return received;
}

bool is_of_this_user(const Descriptor& socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == ::geteuid();
}

// One rank's part in the exchange.
class Exchange {
 public:
  Exchange(const MemoryOffer& offer, const std::vector<std::pair<int, HostWord>>& members, const SharedBlock* own,
           milliseconds limit)
      : offer_(offer), members_(members), own_(own), deadline_(steady_clock::now() + limit) {}

  // Nobody waits before it has greeted all ranks below it: so each wait here is for what is already under way.
  std::vector<Neighbour> run() {
    for (const auto& [rank, word] : members_) {
      if (rank < offer_.rank()) call(rank, word);
    }
    answer();
    for (auto& [rank, word, connection] : called_) {
      if (auto received = receive_greeting(connection, deadline_)) take(rank, word, *received, std::move(connection));
    }
    return std::move(neighbours_);
  }

 private:
  struct Called {
    int rank;
    const HostWord& word;
    Descriptor connection;
  };

  int memory() const { return own_ != nullptr ? own_->descriptor() : -1; }

  void call(int rank, const HostWord& word) {
    Descriptor socket = new_socket();
    const AbstractAddress address(word.socket);
    if (::connect(socket.get(), address.get(), address.size) != 0 || !is_of_this_user(socket)) return;
    if (send_greeting(socket, word, offer_.rank(), memory())) called_.push_back({rank, word, std::move(socket)});
  }

  void answer() {
    const auto above =
        std::count_if(members_.begin(), members_.end(), [&](const auto& m) { return m.first > offer_.rank(); });
    for (int answered = 0; answered < above;) {
      if (!wait_readable(offer_.listener(), deadline_)) return;
      Descriptor socket(::accept4(offer_.listener(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.is_open() || !is_of_this_user(socket)) continue;
      auto received = receive_greeting(socket, deadline_);
      if (!received || !is_for(received->greeting, offer_.word())) continue;
      const auto member = std::find_if(members_.begin(), members_.end(),
                                       [&](const auto& m) { return m.first == received->greeting.rank; });
      if (member == members_.end() || member->first <= offer_.rank()) continue;
      ++answered;
      const bool sent = send_greeting(socket, member->second, offer_.rank(), memory());
      if (sent) take(member->first, member->second, *received, std::move(socket));
    }
  }

  void take(int rank, const HostWord& word, Received& received, Descriptor connection) {
    const bool expected = received.greeting.rank == rank && is_for(received.greeting, offer_.word());
    if (own_ == nullptr || !expected || !received.memory.is_open()) return;
    try {
      SharedBlock block(std::move(received.memory), own_->bytes().size());
      block.close_descriptor();
      if (std::memcmp(block.bytes().data(), word.nonce.data(), word.nonce.size()) != 0) return;
      neighbours_.push_back({rank, std::move(block), std::move(connection)});
    } catch (const Error&) {
      // Not mapped: the two go without.
    }
  }

  const MemoryOffer& offer_;
  const std::vector<std::pair<int, HostWord>>& members_;
  const SharedBlock* own_;
  const steady_clock::time_point deadline_;
  std::vector<Called> called_;
  std::vector<Neighbour> neighbours_;
};

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::release() {
  return std::exchange(fd_, -1);
}

SharedBlock::SharedBlock(std::size_t bytes) : memory_(::memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!memory_.is_open()) refuse_with_errno("memfd_create");
  // What is not found now would be SIGBUS at its first use.
  if (const int error = ::posix_fallocate(memory_.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    refuse_with_errno("posix_fallocate", error);
  }
  if (::fcntl(memory_.get(), F_ADD_SEALS, kSeals) != 0) refuse_with_errno("F_ADD_SEALS");
  map(bytes);
}

SharedBlock::SharedBlock(Descriptor memory, std::size_t bytes) : memory_(std::move(memory)) {
  struct stat status {};
  if (::fstat(memory_.get(), &status) != 0) refuse_with_errno("fstat");
  if (status.st_size != static_cast<off_t>(bytes)) refuse("a peer's block has another size");
  if ((::fcntl(memory_.get(), F_GET_SEALS) & kSeals) != kSeals) refuse("a peer's block could be cut short");
  map(bytes);
}

SharedBlock::SharedBlock(SharedBlock&& other) noexcept
    : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedBlock& SharedBlock::operator=(SharedBlock&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedBlock::~SharedBlock() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void SharedBlock::map(std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (address == MAP_FAILED) refuse_with_errno("mmap");
  bytes_ = {static_cast<std::byte*>(address), bytes};
}

std::string to_text(const HostWord& word) {
  return word.host + " " + word.network + " " + word.socket + " " + word.nonce;
}

std::optional<HostWord> parse_host_word(const std::string& text) {
  HostWord word;
  std::istringstream words(text);
  words >> word.host >> word.network >> word.socket >> word.nonce;
  if (!words || word.nonce.size() != kNonceSize) return std::nullopt;
  return word;
}

MemoryOffer::MemoryOffer(int rank)
    : rank_(rank),
      word_{.host = this_host(rank), .network = this_network(), .socket = random_hex(), .nonce = random_hex()},
      listener_(new_socket()) {
  const AbstractAddress address(word_.socket);
  if (::bind(listener_.get(), address.get(), address.size) != 0) refuse_with_errno("bind");
  if (::listen(listener_.get(), SOMAXCONN) != 0) refuse_with_errno("listen");
}

std::vector<Neighbour> exchange_blocks(const MemoryOffer& offer, const std::vector<std::pair<int, HostWord>>& members,
                                       const SharedBlock* own, milliseconds limit) {
  return Exchange(offer, members, own, limit).run();
}

bool is_gone(const Descriptor& connection) {
  char byte;
  const ssize_t size = ::recv(connection.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

void hang_up(const Descriptor& connection) {
  ::shutdown(connection.get(), SHUT_RDWR);
}

}  // namespace trireme::comm
