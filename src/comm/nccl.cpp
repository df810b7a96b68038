#include "comm/nccl.h"

#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/shared_library.h"
#include "comm/collectives.h"

namespace trireme::comm {
namespace {

// NCCL's own names and numbers, which have been the same since its version 2.4: no header is needed to build, and none
// has to match what is found at run time.
struct UniqueId {
  std::array<char, 128> bytes;
};
enum Result : int { kSuccess = 0, kSystemError = 2, kRemoteError = 6, kInProgress = 7 };
constexpr int kBytes = 0;  // ncclInt8

struct Library {
  const char* (*get_error_string)(Result);
  const char* (*get_last_error)(void* comm);
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init_rank)(void** comm, int world_size, UniqueId, int rank);
  Result (*comm_destroy)(void* comm);
  Result (*comm_abort)(void* comm);
  Result (*comm_get_async_error)(void* comm, Result*);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void*, std::size_t, int type, int peer, void* comm, void* stream);
  Result (*receive)(void*, std::size_t, int type, int peer, void* comm, void* stream);
  Result (*all_gather)(const void*, void*, std::size_t, int type, void* comm, void* stream);
};

Library load() {
  static SharedLibrary file("libnccl.so.2",
                            "several ranks on CUDA devices need NCCL: install Debian's or NVIDIA's libnccl2, or set "
                            "LD_LIBRARY_PATH to where PyPI's nvidia-nccl-cu13 has it");
  // Multicast memory is not to be had on every machine that offers it. Whoever wants it sets the variable.
  ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  Library nccl{};
  const auto find = [](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(file.symbol(name));
  };
  find(nccl.get_error_string, "ncclGetErrorString");
  find(nccl.get_last_error, "ncclGetLastError");
  find(nccl.get_unique_id, "ncclGetUniqueId");
  find(nccl.comm_init_rank, "ncclCommInitRank");
  find(nccl.comm_destroy, "ncclCommDestroy");
  find(nccl.comm_abort, "ncclCommAbort");
  find(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  find(nccl.group_start, "ncclGroupStart");
  find(nccl.group_end, "ncclGroupEnd");
  find(nccl.send, "ncclSend");
  find(nccl.receive, "ncclRecv");
  find(nccl.all_gather, "ncclAllGather");
  return nccl;
}

const Library& nccl() {
  static const Library library = load();
  return library;
}

void check(Result result, const char* call, int rank) {
  if (result == kSuccess || result == kInProgress) return;
  const bool is_peer = result == kSystemError || result == kRemoteError;
  throw Error(is_peer ? 1101 : 1104, "rank " + std::to_string(rank),
              std::string(call) + ": " + nccl().get_error_string(result) + "; " + nccl().get_last_error(nullptr),
              "NCCL_DEBUG=WARN says more");
}

}  // namespace

std::int64_t Nccl::planned_bytes(std::initializer_list<int> world_sizes) {
  constexpr std::int64_t kMiB = 1 << 20, kCode = 1106 * kMiB, kChannel = 12 * kMiB, kOfRing = 24, kOfPeer = 32;
  std::int64_t buffers = 0;
  for (const int size : world_sizes) buffers += size > 1 ? (kOfRing + (size - 1) * kOfPeer) * kChannel : 0;
  return buffers > 0 ? kCode + buffers : 0;
}

Nccl::Nccl(Communicator& ranks) : rank_(ranks.rank()), world_size_(ranks.world_size()) {
  UniqueId id{};
  const Library& library = nccl();
  if (rank_ == 0) check(library.get_unique_id(&id), "ncclGetUniqueId", rank_);
  broadcast(ranks, std::as_writable_bytes(std::span(id.bytes)), 0);
  barrier(ranks);  // a rank that does not come is noticed here: NCCL would wait for it
  check(library.comm_init_rank(&handle_, world_size_, id, rank_), "ncclCommInitRank", rank_);
}

Nccl::~Nccl() {
  if (handle_ != nullptr) nccl().comm_destroy(handle_);
}

void* Nccl::handle() const {
  if (handle_ == nullptr) throw Error(1102, "rank " + std::to_string(rank_), "communication of devices was broken off");
  return handle_;
}

void Nccl::exchange(std::span<const Piece> sends, std::span<const Piece> receives, void* stream) {
  void* const comm = handle();
  check(nccl().group_start(), "ncclGroupStart", rank_);
  for (const auto& [data, bytes, peer, there] : sends) {
    if (bytes == 0) continue;
    check(nccl().send(data, static_cast<std::size_t>(bytes), kBytes, peer, comm, stream), "ncclSend", rank_);
  }
  for (const auto& [data, bytes, peer, there] : receives) {
    if (bytes == 0) continue;
    check(nccl().receive(data, static_cast<std::size_t>(bytes), kBytes, peer, comm, stream), "ncclRecv", rank_);
  }
  check(nccl().group_end(), "ncclGroupEnd", rank_);
}

void Nccl::all_gather(const std::byte* mine, std::byte* all, std::int64_t bytes, void* stream) {
  if (bytes == 0) return;
  check(nccl().all_gather(mine, all, static_cast<std::size_t>(bytes), kBytes, handle(), stream), "ncclAllGather",
        rank_);
}

void Nccl::throw_if_failed() const {
  Result result = kSuccess;
  check(nccl().comm_get_async_error(handle(), &result), "ncclCommGetAsyncError", rank_);
  check(result, "NCCL", rank_);
}

void Nccl::abort() noexcept {
  if (void* const comm = std::exchange(handle_, nullptr)) nccl().comm_abort(comm);
}

}  // namespace trireme::comm
