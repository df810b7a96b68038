#include "kernels/device.h"

#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/shared_library.h"
#include "kernels/cuda/library.h"

namespace trireme::kernels {
namespace {

SharedLibrary& file() {
  static SharedLibrary cuda("libtrireme_cuda.so",
                            "it needs the CUDA 13 runtime, cuBLAS and cuDNN: set LD_LIBRARY_PATH to where they are, or "
                            "run `make` on a machine with a CUDA 13 toolkit");
  return cuda;
}

// What the CUDA runtime runs on. Looked for first: it is a small library, the others are not.
SharedLibrary& driver() {
  static SharedLibrary cuda("libcuda.so.1", "install NVIDIA's driver");
  return cuda;
}

bool has_driver_and_library() {
  return has_driver() && file().load().empty();
}

// Loads it.
const CudaLibrary& library() {
  static const CudaLibrary& table = *static_cast<const CudaLibrary*>(file().symbol("trireme_cuda_library"));
  return table;
}

thread_local const CudaLibrary* current = nullptr;
thread_local void* current_handle = nullptr;  // of the stream

std::uint64_t this_process() {
  static const std::uint64_t number = [] {
    std::random_device random;
    return (static_cast<std::uint64_t>(random()) << 32 | random()) | 1;
  }();
  return number;
}

const std::array<char, 40>& this_machine() {
  static const std::array<char, 40> boot = [] {
    std::array<char, 40> id{};
    std::ifstream("/proc/sys/kernel/random/boot_id").get(id.data(), std::ssize(id));
    return id;
  }();
  return boot;
}

// The library is built with CUDA 13, and what any toolkit of a major version makes runs on each driver of that version.
constexpr int kLeastDriver = 13000;
constexpr const char* kLeastDriverName = "580.65.06";  // CUDA 13.0's on Linux: NVIDIA's release notes of the toolkit

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

bool has_driver() {
  return driver().load().empty();
}

int num_devices() {
  if (!has_driver_and_library()) return 0;
  std::string why;
  return library().count_devices(&why);
}

std::string why_no_device() {
  if (const std::string& error = driver().load(); !error.empty()) return "there is no driver of NVIDIA's: " + error;
  if (const std::string& error = file().load(); !error.empty()) return error;
  std::string why;
  library().count_devices(&why);
  return why;
}

void need_device(const std::string& place, const std::string& what, const std::string& remedy) {
  if (num_devices() > 0) return;
  if (has_driver_and_library()) check_driver(library().driver_version(), place);
  throw Error(3064, place, what + ", but there is no CUDA device here: " + why_no_device(), remedy);
}

void check_driver(int version, const std::string& place) {
  if (version == 0 || version >= kLeastDriver) return;
  throw Error(3065, place,
              "NVIDIA's driver here knows CUDA " + cuda_version(version) + " at most; " + cuda_version(kLeastDriver) +
                  " is needed",
              std::string("install driver ") + kLeastDriverName + " or a later one; `nvidia-smi` says which is there");
}

DeviceFacts device_facts(int device) {
  return library().facts(device);
}
std::int64_t device_memory_in_use(int device) {
  return library().memory_in_use(device);
}
void release_device() {
  if (num_devices() > 0) library().release_device();
}
std::byte* allocate_on_device(std::int64_t bytes) {
  return library().allocate(bytes);
}
void free_on_device(std::byte* memory) noexcept {
  if (memory != nullptr) library().free(memory);
}
void pin(std::byte* memory, std::int64_t bytes) {
  library().pin(memory, bytes);
}
void unpin(std::byte* memory) noexcept {
  library().unpin(memory);
}

bool devices_reach_each_other(int count) {
  if (num_devices() < count) return false;
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (!library().can_reach(from, to)) return false;
    }
  }
  return true;
}
SharedMemory share(std::byte* memory) {
  SharedMemory name{.machine = this_machine(), .memory = memory, .device = library().current_device()};
  if (name.machine[0] != 0 && library().export_memory(memory, name.handle.data())) name.process = this_process();
  return name;
}
std::byte* open_shared(const SharedMemory& name) {
  if (name.process == 0 || name.machine != this_machine()) return nullptr;
  if (name.process != this_process()) return library().import_memory(name.handle.data());
  return library().reach_device(name.device) ? name.memory : nullptr;
}
void close_shared(const SharedMemory& name, std::byte* opened) noexcept {
  if (opened != nullptr && name.process != this_process()) library().close_memory(opened);
}

void use_device(int device) {
  library().use_device(device);
}
void copy_now(void* to, const void* from, std::int64_t bytes) {
  library().copy_now(to, from, bytes);
}

Stream::Stream(bool high_priority) : handle_(library().make_stream(high_priority)) {}
Stream::~Stream() {
  if (handle_ != nullptr) library().destroy_stream(handle_);
}
void Stream::wait(const Event& event) const {
  library().wait(handle_, event.handle());
}
void Stream::synchronize() const {
  library().synchronize_stream(handle_);
}

Event::Event(bool timed) : handle_(library().make_event(timed)) {}
Event::~Event() {
  if (handle_ != nullptr) library().destroy_event(handle_);
}
void Event::record(const Stream& stream) const {
  library().record(handle_, stream.handle());
}
void Event::record() const {
  TRIREME_CHECK(current_handle != nullptr, "an event was recorded on no stream");
  library().record(handle_, current_handle);
}
void Event::synchronize() const {
  library().synchronize_event(handle_);
}
bool Event::is_reached() const {
  return library().is_reached(handle_);
}
double seconds_between(const Event& first, const Event& second) {
  return library().seconds_between(first.handle(), second.handle());
}

OnStream::OnStream(const Stream& stream) : before_(library().set_stream(stream.handle())) {
  current = &library();
  current_handle = stream.handle();
}
OnStream::~OnStream() {
  library().set_stream(before_);
  current_handle = before_;
  if (before_ == nullptr) current = nullptr;
}
ForDevice::ForDevice(int device) : before_(current) {
  if (device < 0 || device >= num_devices()) return;
  use_device(device);
  current = &library();
}
ForDevice::~ForDevice() {
  current = before_;
}
std::int64_t stream_scratch_bytes() {
  return library().stream_scratch_bytes;
}

OnHost::OnHost() : before_(std::exchange(current, nullptr)) {}
OnHost::~OnHost() {
  current = before_;
}
const CudaLibrary* current_device() {
  return current;
}
void* current_stream() {
  return library().native_stream();
}

Constants::~Constants() {
  for (const auto& [device, copy] : copies_) free_on_device(copy);
}

const float* Constants::data() const {
  if (current == nullptr) return values_.data();
  const std::lock_guard lock(mutex_);
  std::byte*& there = copies_[library().current_device()];
  if (there == nullptr) {
    const auto bytes = static_cast<std::int64_t>(values_.size() * sizeof(float));
    there = allocate_on_device(bytes);
    copy_now(there, values_.data(), bytes);
  }
  return reinterpret_cast<const float*>(there);
}

void copy(void* to, const void* from, std::int64_t bytes) {
  if (current != nullptr) return current->copy(to, from, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void fill_normal_rows(const NormalRows& rows, DType dtype, void* out) {
  TRIREME_CHECK(current != nullptr, "numbers were to be drawn on no stream");
  current->fill_normal_rows(rows, dtype, out);
}
void call_on_host(std::function<void()> work) {
  TRIREME_CHECK(current != nullptr, "a host function was given to no stream");
  current->call_on_host(std::move(work));
}
void raise_flag(std::uint32_t* flag, std::uint32_t value) {
  TRIREME_CHECK(current != nullptr, "a flag was to be raised on no stream");
  current->raise_flag(flag, value);
}
void await_flag(const std::uint32_t* flag, std::uint32_t value) {
  TRIREME_CHECK(current != nullptr, "a flag was awaited on no stream");
  current->await_flag(flag, value);
}
void zero(void* memory, std::int64_t bytes) {
  if (current != nullptr) return current->zero(memory, bytes);
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
}

}  // namespace trireme::kernels
