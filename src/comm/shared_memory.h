// Memory that the ranks of one host share: each has a block of its own, which it hands to the others.
//
// The blocks have no names (memfd), so nothing of them is left behind, whenever a rank is killed, and a small /dev/shm
// does not matter. They travel over sockets of the network namespace, where a random name on the store finds them; each
// connection stays open, because it ends with the process at its other end, whoever kills that.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

inline constexpr int kNoSharedMemory = 1117;  // the code of what the system refuses here; never ends a run

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int release();
  int fd_;
};

// Mapped memory that cannot be cut short by anyone. The constructors throw Error TR1117 with what the system says.
class SharedBlock {
 public:
  explicit SharedBlock(std::size_t bytes);            // a new one, of zeros, for which memory has been found
  SharedBlock(Descriptor memory, std::size_t bytes);  // a peer's, which must have that size
  SharedBlock(SharedBlock&& other) noexcept;
  SharedBlock& operator=(SharedBlock&& other) noexcept;
  ~SharedBlock();
  std::span<std::byte> bytes() const { return bytes_; }
  int descriptor() const { return memory_.get(); }
  void close_descriptor() { memory_ = Descriptor(); }  // once nobody is to get the block any more

 private:
  void map(std::size_t bytes);
  Descriptor memory_;
  std::span<std::byte> bytes_;
};

// What a rank tells all others of where it is; text of a store's key.
struct HostWord {
  std::string host;     // boot of the kernel
  std::string network;  // its network namespace, in which sockets have names
  std::string socket, nonce;
  bool operator==(const HostWord&) const = default;
};
std::string to_text(const HostWord& word);
std::optional<HostWord> parse_host_word(const std::string& text);  // empty where a peer offers nothing

// A rank that listens for the others' blocks. Throws TR1117.
class MemoryOffer {
 public:
  explicit MemoryOffer(int rank);
  const HostWord& word() const { return word_; }
  int rank() const { return rank_; }
  int listener() const { return listener_.get(); }

 private:
  int rank_;
  HostWord word_;
  Descriptor listener_;
};

// A peer whose block is mapped here.
struct Neighbour {
  int rank;
  SharedBlock block;
  Descriptor connection;  // ends with the peer
};

// Hands `own` (nullptr: this rank has none, which the others learn at once) to the ranks of `members`, which are those
// of this host in order with their words, and takes theirs. Every block has own's size and begins with its owner's
// nonce. Peers that do not answer within the limit are left out.
std::vector<Neighbour> exchange_blocks(const MemoryOffer& offer, const std::vector<std::pair<int, HostWord>>& members,
                                       const SharedBlock* own, std::chrono::milliseconds limit);

bool is_gone(const Descriptor& connection);  // the peer's end was closed or shut down
void hang_up(const Descriptor& connection);  // has is_gone become true at both ends; from any thread

}  // namespace trireme::comm
