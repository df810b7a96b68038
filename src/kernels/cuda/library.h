// What libtrireme_cuda.so exports: one table, under the name trireme_cuda_library. device.h is the way to it.
//
// Functions throw Error: TR1305 for what the device reports, TR1301 for memory. The current device and stream are the
// calling thread's.
#pragma once
#include "kernels/device.h"
#include "kernels/gemm_table.h"
#include "kernels/kernels.h"
#include "kernels/products.h"

namespace trireme::kernels {

struct CudaLibrary {
  const char* version;  // of Trireme, which must be the binary's own: "0.1.0"
  // 0 devices: *why has the driver's reason.
  int (*count_devices)(std::string* why);
  int (*driver_version)();  // 0: there is no driver
  DeviceFacts (*facts)(int device);
  std::int64_t (*memory_in_use)(int device);
  void (*use_device)(int device);
  int (*current_device)();  // the calling thread's
  void (*copy_now)(void* to, const void* from, std::int64_t bytes);

  std::byte* (*allocate)(std::int64_t bytes);
  void (*free)(std::byte* memory);
  void (*pin)(std::byte* memory, std::int64_t bytes);
  void (*unpin)(std::byte* memory);
  // For other processes. False, null: not to be had.
  bool (*export_memory)(std::byte* memory, std::byte* handle);
  std::byte* (*import_memory)(const std::byte* handle);
  void (*close_memory)(std::byte* memory);
  bool (*reach_device)(int device);  // for threads of this process
  bool (*can_reach)(int from, int to);

  void* (*make_stream)(bool high_priority);
  void (*destroy_stream)(void* stream);
  void (*synchronize_stream)(void* stream);
  void (*wait)(void* stream, void* event);
  void* (*make_event)(bool timed);
  void (*destroy_event)(void* event);
  void (*record)(void* event, void* stream);
  void (*synchronize_event)(void* event);
  bool (*is_reached)(void* event);
  double (*seconds_between)(void* first, void* second);

  std::int64_t stream_scratch_bytes;
  std::int64_t (*attention_workspace)(const AttentionShape& shape, DType dtype, bool backward);

  // The calling thread's stream, and the one before.
  void* (*set_stream)(void* stream);
  void* (*native_stream)();
  void (*copy)(void* to, const void* from, std::int64_t bytes);
  void (*zero)(void* memory, std::int64_t bytes);
  void (*release_device)();
  void (*fill_normal_rows)(const NormalRows& rows, DType dtype, void* out);
  void (*call_on_host)(std::function<void()> work);
  void (*raise_flag)(std::uint32_t* flag, std::uint32_t value);
  void (*await_flag)(const std::uint32_t* flag, std::uint32_t value);

  std::string (*product_library)();
  int (*measure_product)(const Product& product);
  void (*choose_products)(const ProductChoices& choices);

  const Table<float>* f32;
  const Table<bfloat16>* bf16;
  const Table<float16>* f16;
  const FlatTable* flat;
  const GemmTable* gemm;
};

}  // namespace trireme::kernels
