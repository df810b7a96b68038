#include "kernels/cuda/library.h"

#include <cuda.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "kernels/cuda/fused_attention.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/tables.h"

namespace trireme::kernels::cuda {
namespace {

thread_local StreamState* current_state = nullptr;

void fail(const char* call, const char* why) {
  throw Error(1305, "CUDA device", std::string(call) + ": " + why,
              "CUDA_LAUNCH_BLOCKING=1 names the kernel at fault; `compute-sanitizer` finds memory faults");
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(status));
}

StreamState& current() {
  TRIREME_CHECK(current_state != nullptr, "a kernel of a device was called without a stream");
  return *current_state;
}

std::byte* workspace(StreamState& state) {
  if (state.workspace == nullptr) TRIREME_CUDA(cudaMalloc(&state.workspace, kWorkspaceBytes));
  return state.workspace;
}

// One a device, for the life of the process.
cublasLtHandle_t cublas() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[current().device];
  if (handle == nullptr) TRIREME_CUDA(cublasLtCreate(&handle));
  return handle;
}

namespace {

int driver_version() {
  int version = 0;
  TRIREME_CUDA(cudaDriverGetVersion(&version));
  return version;
}

void release_device() {
  TRIREME_CUDA(cudaDeviceReset());
}

int count_devices(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    // Of a machine without a driver CUDA says that the driver is too old.
    *why = driver_version() == 0 ? "there is no driver of NVIDIA's" : cudaGetErrorString(status);
    cudaGetLastError();  // it is no error of the next call
    return 0;
  }
  return count;
}

DeviceFacts facts(int device) {
  cudaDeviceProp properties{};
  TRIREME_CUDA(cudaGetDeviceProperties(&properties, device));
  DeviceFacts facts{.name = properties.name,
                    .major = properties.major,
                    .minor = properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                    .l2_bytes = properties.l2CacheSize};
  facts.driver = driver_version();
  TRIREME_CUDA(cudaRuntimeGetVersion(&facts.runtime));
  return facts;
}

void use_device(int device) {
  TRIREME_CUDA(cudaSetDevice(device));
}

std::int64_t memory_in_use(int device) {
  int before = 0;
  TRIREME_CUDA(cudaGetDevice(&before));
  TRIREME_CUDA(cudaSetDevice(device));
  std::size_t free = 0, total = 0;
  TRIREME_CUDA(cudaMemGetInfo(&free, &total));
  TRIREME_CUDA(cudaSetDevice(before));
  return static_cast<std::int64_t>(total - free);
}

int current_device() {
  int device = 0;
  TRIREME_CUDA(cudaGetDevice(&device));
  return device;
}
void copy_now(void* to, const void* from, std::int64_t bytes) {
  TRIREME_CUDA(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
}
void check_memory(cudaError_t status, const char* where, std::int64_t bytes) {
  if (status != cudaErrorMemoryAllocation) return check(status, where);
  cudaGetLastError();
  throw Error(1301, where, "there are no " + std::to_string(bytes) + " bytes for this rank",
              "`trireme train CONFIG --dry-run` prints the memory by owner; a smaller micro_batch_size needs less");
}

}  // namespace

std::byte* allocate(std::int64_t bytes) {
  void* memory = nullptr;
  if (bytes != 0) check_memory(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "device memory", bytes);
  return static_cast<std::byte*>(memory);
}
void free(std::byte* memory) {
  cudaFree(memory);
}

namespace {

void pin(std::byte* memory, std::int64_t bytes) {
  // Of every device: ranks that are threads have one each.
  const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  check_memory(cudaHostRegister(memory, static_cast<std::size_t>(bytes), flags), "pinned host memory", bytes);
}
void unpin(std::byte* memory) {
  cudaHostUnregister(memory);
}

// What is not to be had is no error of the next call.
bool is_to_be_had(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

bool export_memory(std::byte* memory, std::byte* handle) {
  static_assert(sizeof(cudaIpcMemHandle_t) == std::tuple_size_v<decltype(SharedMemory::handle)>);
  cudaIpcMemHandle_t exported;
  if (!is_to_be_had(cudaIpcGetMemHandle(&exported, memory))) return false;
  std::memcpy(handle, &exported, sizeof(exported));
  return true;
}
std::byte* import_memory(const std::byte* handle) {
  cudaIpcMemHandle_t exported;
  std::memcpy(&exported, handle, sizeof(exported));
  void* memory = nullptr;
  const cudaError_t status = cudaIpcOpenMemHandle(&memory, exported, cudaIpcMemLazyEnablePeerAccess);
  return is_to_be_had(status) ? static_cast<std::byte*>(memory) : nullptr;
}
void close_memory(std::byte* memory) {
  cudaIpcCloseMemHandle(memory);
}
bool can_reach(int from, int to) {
  int may = 0;
  return from == to || (is_to_be_had(cudaDeviceCanAccessPeer(&may, from, to)) && may != 0);
}
bool reach_device(int device) {
  const int own = current_device();
  if (device == own) return true;
  if (!can_reach(own, device)) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(device, 0);
  return is_to_be_had(status) || status == cudaErrorPeerAccessAlreadyEnabled;
}

StreamState& state_of(void* stream) {
  return *static_cast<StreamState*>(stream);
}
cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

void* make_stream(bool high_priority) {
  StreamState state;
  int least = 0, greatest = 0;
  TRIREME_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TRIREME_CUDA(cudaGetDevice(&state.device));
  TRIREME_CUDA(cudaDeviceGetAttribute(&state.multiprocessors, cudaDevAttrMultiProcessorCount, state.device));
  TRIREME_CUDA(cudaStreamCreateWithPriority(&state.stream, cudaStreamNonBlocking, high_priority ? greatest : least));
  return new StreamState(state);
}
void destroy_stream(void* stream) {
  StreamState& state = state_of(stream);
  cudaStreamDestroy(state.stream);
  cudaFree(state.workspace);
  delete &state;
}
void synchronize_stream(void* stream) {
  TRIREME_CUDA(cudaStreamSynchronize(state_of(stream).stream));
}
void wait(void* stream, void* event) {
  TRIREME_CUDA(cudaStreamWaitEvent(state_of(stream).stream, event_of(event), 0));
}

void* make_event(bool timed) {
  cudaEvent_t event = nullptr;
  TRIREME_CUDA(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}
void destroy_event(void* event) {
  cudaEventDestroy(event_of(event));
}
void record(void* event, void* stream) {
  TRIREME_CUDA(cudaEventRecord(event_of(event), state_of(stream).stream));
}
void synchronize_event(void* event) {
  TRIREME_CUDA(cudaEventSynchronize(event_of(event)));
}
bool is_reached(void* event) {
  const cudaError_t status = cudaEventQuery(event_of(event));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // it is no error of the next call
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}
double seconds_between(void* first, void* second) {
  float milliseconds = 0;
  TRIREME_CUDA(cudaEventElapsedTime(&milliseconds, event_of(first), event_of(second)));
  return milliseconds * 1e-3;
}

void* set_stream(void* stream) {
  StreamState* before = current_state;
  current_state = static_cast<StreamState*>(stream);
  return before;
}
void* native_stream() {
  return current().stream;
}
void copy(void* to, const void* from, std::int64_t bytes) {
  TRIREME_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, current().stream));
}

// Of the driver's own interface, which this library is not linked to: it loads where there is no driver.
struct FlagCalls {
  decltype(&cuStreamWriteValue32) write = nullptr;
  decltype(&cuStreamWaitValue32) wait = nullptr;
};
const FlagCalls& flag_calls() {
  static const FlagCalls calls = [] {
    FlagCalls found;
    const auto find = [](auto& function, const char* name) {
      cudaDriverEntryPointQueryResult result{};
      void* address = nullptr;
      TRIREME_CUDA(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &result));
      TRIREME_CHECK(result == cudaDriverEntryPointSuccess, std::string("the driver has no ") + name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    };
    find(found.write, "cuStreamWriteValue32");
    find(found.wait, "cuStreamWaitValue32");
    return found;
  }();
  return calls;
}
void check(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) fail(call, ("the driver's error " + std::to_string(status)).c_str());
}
void raise_flag(std::uint32_t* flag, std::uint32_t value) {
  const auto address = reinterpret_cast<CUdeviceptr>(flag);
  check(flag_calls().write(current().stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT), "cuStreamWriteValue32");
}
void await_flag(const std::uint32_t* flag, std::uint32_t value) {
  const auto address = reinterpret_cast<CUdeviceptr>(flag);
  check(flag_calls().wait(current().stream, address, value, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
}

void call_on_host(std::function<void()> work) {
  auto given = std::make_unique<std::function<void()>>(std::move(work));
  TRIREME_CUDA(cudaLaunchHostFunc(
      current().stream,
      [](void* taken) {
        const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(taken));
        (*mine)();
      },
      given.get()));
  static_cast<void>(given.release());  // it is the callback's now
}
void zero(void* memory, std::int64_t bytes) {
  TRIREME_CUDA(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), current().stream));
}

}  // namespace
}  // namespace trireme::kernels::cuda

namespace trireme::kernels {

extern "C" const CudaLibrary trireme_cuda_library;
const CudaLibrary trireme_cuda_library{.version = TRIREME_VERSION,
                                       .count_devices = cuda::count_devices,
                                       .driver_version = cuda::driver_version,
                                       .facts = cuda::facts,
                                       .memory_in_use = cuda::memory_in_use,
                                       .use_device = cuda::use_device,
                                       .current_device = cuda::current_device,
                                       .copy_now = cuda::copy_now,
                                       .allocate = cuda::allocate,
                                       .free = cuda::free,
                                       .pin = cuda::pin,
                                       .unpin = cuda::unpin,
                                       .export_memory = cuda::export_memory,
                                       .import_memory = cuda::import_memory,
                                       .close_memory = cuda::close_memory,
                                       .reach_device = cuda::reach_device,
                                       .can_reach = cuda::can_reach,
                                       .make_stream = cuda::make_stream,
                                       .destroy_stream = cuda::destroy_stream,
                                       .synchronize_stream = cuda::synchronize_stream,
                                       .wait = cuda::wait,
                                       .make_event = cuda::make_event,
                                       .destroy_event = cuda::destroy_event,
                                       .record = cuda::record,
                                       .synchronize_event = cuda::synchronize_event,
                                       .is_reached = cuda::is_reached,
                                       .seconds_between = cuda::seconds_between,
                                       .stream_scratch_bytes = cuda::kWorkspaceBytes,
                                       .attention_workspace = cuda::fused_attention_workspace,
                                       .set_stream = cuda::set_stream,
                                       .native_stream = cuda::native_stream,
                                       .copy = cuda::copy,
                                       .zero = cuda::zero,
                                       .release_device = cuda::release_device,
                                       .fill_normal_rows = cuda::fill_normal_rows,
                                       .call_on_host = cuda::call_on_host,
                                       .raise_flag = cuda::raise_flag,
                                       .await_flag = cuda::await_flag,
                                       .product_library = cuda::product_library,
                                       .measure_product = cuda::measure_product,
                                       .choose_products = cuda::choose_products,
                                       .f32 = &cuda::kFloatTable,
                                       .bf16 = &cuda::kBfloat16Table,
                                       .f16 = &cuda::kFloat16Table,
                                       .flat = &cuda::kFlatTable,
                                       .gemm = &cuda::kGemmTable};

}  // namespace trireme::kernels
