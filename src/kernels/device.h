// Where the kernels of a thread run: on the CPU, or on a stream of a CUDA device.
//
// What runs on a device is libtrireme_cuda.so, which is loaded when a device is first asked for; without it, or without
// a driver, there are no devices. On a stream the kernels of kernels.h work on memory of the device, whatever of their
// arguments is an array, and they are asynchronous: they run one after another in the order of their stream, and what
// they read must stay until then. One thread at a time uses a Stream. An error that a device reports (TR1305) comes at
// the next call that waits; the device is of no more use to the process then.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "layout/dtype.h"

namespace trireme::kernels {

struct CudaLibrary;

struct DeviceFacts {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  int driver = 0, runtime = 0;  // CUDA versions: 13000 is 13.0
};

// 0 where there is none; then why_no_device() says why.
bool has_driver();  // NVIDIA's, of whatever version
int num_devices();
std::string why_no_device();
// Throws where there is no device: Error TR3064, whose message is `what`, ", but there is no CUDA device here: " and
// why; where the driver is why, what check_driver throws.
void need_device(const std::string& place, const std::string& what, const std::string& remedy);
// Error TR3065 for a driver that the CUDA library cannot run with. version: of CUDA, the newest that the driver knows,
// 12080 is 12.8; 0: there is no driver, of which nothing is said here.
void check_driver(int version, const std::string& place);
DeviceFacts device_facts(int device);
// Of all processes together, with what driver and libraries take for themselves.
std::int64_t device_memory_in_use(int device);

// Gives back what this process has taken of the calling thread's device by being asked about it; a process that uses
// devices afterwards begins anew.
void release_device();

// Memory of the calling thread's device, not zeroed. Error TR1301 where there is not enough.
std::byte* allocate_on_device(std::int64_t bytes);
void free_on_device(std::byte* memory) noexcept;
// The host's memory stays where it is until it is unpinned, which comes before it is given back. In between all devices
// reach it under the host's address: copies from and to it are asynchronous, and kernels read and write it through the
// bus. Error TR1301 where the system does not let so much be pinned.
void pin(std::byte* memory, std::int64_t bytes);
void unpin(std::byte* memory) noexcept;

// Whether the first so many devices of this machine can reach each other's memory, as the driver says.
bool devices_reach_each_other(int count);
// A name for device memory by which other ranks of the machine reach it, be they processes or threads. It may be sent.
struct SharedMemory {
  std::array<char, 40> machine{};      // its boot's id
  std::uint64_t process = 0;           // 0: it cannot be shared
  std::byte* memory = nullptr;         // as that process knows it
  std::array<std::byte, 64> handle{};  // CUDA's, for other processes
  int device = 0;
};
// Of what allocate_on_device() gave.
SharedMemory share(std::byte* memory);
// Where the calling thread's device reads and writes it, until close_shared(), which comes before it is freed where it
// is clear that it is; null where that is not to be had. `name` may be of another machine.
std::byte* open_shared(const SharedMemory& name);
void close_shared(const SharedMemory& name, std::byte* opened) noexcept;

// The device of the calling thread's allocations, streams and events from now on.
void use_device(int device);
// Copies between any memories, at once: behind nothing that a stream has still to do. The host waits for it.
void copy_now(void* to, const void* from, std::int64_t bytes);

class Event;

class Stream {
 public:
  explicit Stream(bool high_priority = false);
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept { return std::swap(handle_, other.handle_), *this; }
  ~Stream();
  void wait(const Event& event) const;  // what is issued from now on runs behind the event's last record()
  void synchronize() const;             // the host waits for all that was issued
  void* handle() const { return handle_; }

 private:
  void* handle_;
};

// A point in a stream.
class Event {
 public:
  explicit Event(bool timed = false);
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept { return std::swap(handle_, other.handle_), *this; }
  ~Event();
  void record(const Stream& stream) const;
  void record() const;       // in the calling thread's stream
  void synchronize() const;  // the host waits for it
  bool is_reached() const;
  void* handle() const { return handle_; }

 private:
  void* handle_;
};
double seconds_between(const Event& first, const Event& second);  // both timed, and reached

// The calling thread's kernels go to this stream while it lives; guards nest.
class OnStream {
 public:
  explicit OnStream(const Stream& stream);
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream();

 private:
  void* before_;
};
// What the calling thread asks about sizes is answered for this device while it lives, where there is such a device;
// nothing can be launched. Below 0: for the CPU.
class ForDevice {
 public:
  explicit ForDevice(int device);
  ForDevice(const ForDevice&) = delete;
  ForDevice& operator=(const ForDevice&) = delete;
  ~ForDevice();

 private:
  const CudaLibrary* before_;
};
// What kernels and libraries keep for themselves of a stream that they run on.
std::int64_t stream_scratch_bytes();
// The calling thread's kernels run on the CPU while it lives, whatever they did before.
class OnHost {
 public:
  OnHost();
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  ~OnHost();

 private:
  const CudaLibrary* before_;
};
// Of the calling thread; nullptr: its kernels run on the CPU.
const CudaLibrary* current_device();
void* current_stream();  // the calling thread's, as CUDA knows it: a cudaStream_t

// Numbers that kernels read and nothing changes, here and, from the first time that a thread asks on a device, there.
// Thread-safe.
class Constants {
 public:
  explicit Constants(std::vector<float> values) : values_(std::move(values)) {}
  Constants(const Constants&) = delete;
  Constants& operator=(const Constants&) = delete;
  ~Constants();
  const float* data() const;  // where the calling thread's kernels run
  std::size_t size() const { return values_.size(); }

 private:
  const std::vector<float> values_;
  mutable std::mutex mutex_;
  mutable std::map<int, std::byte*> copies_;  // by device
};

// Where the calling thread's kernels run: memory of the host is read or written by copy() on a stream too, behind what
// was issued before, and then must be pinned for the copy to be asynchronous.
void copy(void* to, const void* from, std::int64_t bytes);
void zero(void* memory, std::int64_t bytes);
// Normals of base/random.h, the same bits: element c of row r of out, whose rows are `stride` apart, is mean + scale *
// random_normal(seed, stream, first + r * pitch + c), rounded to fp32 and then to dtype. On a stream of a device only.
struct NormalRows {
  std::uint64_t seed = 0, stream = 0, first = 0;
  std::int64_t rows = 0, columns = 0, pitch = 0, stride = 0;
  double mean = 0, scale = 1;
};
void fill_normal_rows(const NormalRows& rows, DType dtype, void* out);
// In the calling thread's stream, between devices that reach the same flag: raises it, and what the stream was given
// before is seen by whoever sees that; waits until it was raised so far, in a count that wraps. Neither takes a
// multiprocessor. A flag that the host raises by copy_now() counts too.
void raise_flag(std::uint32_t* flag, std::uint32_t value);
void await_flag(const std::uint32_t* flag, std::uint32_t value);
// work() on the host, in the stream's order, on a thread of the driver's: what the stream is given later waits for it.
// It neither throws nor asks anything of the device.
void call_on_host(std::function<void()> work);

}  // namespace trireme::kernels
