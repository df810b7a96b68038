// libtrireme_cuda.so without a device: the kernels of the CPU, in streams that run late and in chance's order, on
// memory that the host cannot reach. With it the host's side of devices is tested where there is no card. NCCL is no
// part of it.
#include "kernels/cuda/library.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "stand_in/memory.h"
#include "stand_in/streams.h"

namespace trireme::stand_in {
namespace {

using namespace kernels;

template <class T>
const Table<T>& of_cpu(std::type_identity<Table<T>>) {
  return table<T>();
}
const FlatTable& of_cpu(std::type_identity<FlatTable>) {
  return flat_table();
}

// A kernel's arrays, those of its structs too, are where the device reaches them.
template <class Argument>
void need_reached(const Argument& argument) {
  if constexpr (std::is_pointer_v<Argument>) {
    TRIREME_CHECK(argument == nullptr || device_reaches(argument), "a kernel of a device was given the host's memory");
  } else if constexpr (std::is_same_v<Argument, Dropout>) {
    need_reached(argument.keys);
  } else if constexpr (std::is_same_v<Argument, OptimizerRun>) {
    for (const void* array : {argument.master, argument.m, argument.v, argument.weights}) need_reached(array);
    need_reached(argument.gradient);
  }
}

// Without `starts`, or `past`, devices take zeros.
template <class Argument>
const Argument& for_cpu(const Argument& argument) {
  return argument;
}
const std::int32_t* for_cpu(const std::int32_t* list) {
  static const std::vector<std::int32_t> zeros(1 << 20);
  return list != nullptr ? list : zeros.data();
}

// The CPU's kernel of that name.
template <auto kernel>
struct Issued;
template <class Tables, class... Arguments, void (*Tables::*kernel)(Arguments...)>
struct Issued<kernel> {
  static void call(Arguments... arguments) {
    (need_reached(arguments), ...);
    issue([... kept = std::decay_t<Arguments>(arguments)] {
      (of_cpu(std::type_identity<Tables>()).*kernel)(for_cpu(kept)...);
    });
  }
};

template <auto kernel>
constexpr auto kIssued = Issued<kernel>::call;

// Its list is on the host, and may be gone when its turn comes.
template <class T>
void accumulate_all(std::int64_t n, int count, const T* const* slots, DType wire, DType sum_dtype, void* sum,
                    bool overwrite) {
  const std::vector<const T*> kept(slots, slots + count);
  for (const T* slot : kept) need_reached(slot);
  need_reached(sum);
  issue([=] { table<T>().accumulate_all(n, count, kept.data(), wire, sum_dtype, sum, overwrite); });
}

// The list of caches is on the device: what is in it is seen when its turn has come.
template <class T>
void attention_cached(const AttentionShape& shape, const T* qkv, std::byte* const* key_values, const std::int32_t* past,
                      const std::int32_t* starts, T* out, float* lse, void* workspace) {
  issue([key_values, past, shape = AttentionShape(shape)] {
    for (std::int64_t b = 0; b < shape.B; ++b) {
      need_reached(key_values[b]);
      TRIREME_CHECK(past[b] <= shape.past, "a sequence has more positions before it than its shape says");
    }
  });
  kIssued<&Table<T>::attention_cached>(shape, qkv, key_values, past, starts, out, lse, workspace);
}

template <class T>
constexpr Table<T> kTable = {.rmsnorm_forward = kIssued<&Table<T>::rmsnorm_forward>,
                             .rmsnorm_backward = kIssued<&Table<T>::rmsnorm_backward>,
                             .layernorm_forward = kIssued<&Table<T>::layernorm_forward>,
                             .layernorm_backward = kIssued<&Table<T>::layernorm_backward>,
                             .rope = kIssued<&Table<T>::rope>,
                             .glu_forward = kIssued<&Table<T>::glu_forward>,
                             .glu_backward = kIssued<&Table<T>::glu_backward>,
                             .activation_forward = kIssued<&Table<T>::activation_forward>,
                             .activation_backward = kIssued<&Table<T>::activation_backward>,
                             .bias_forward = kIssued<&Table<T>::bias_forward>,
                             .bias_backward = kIssued<&Table<T>::bias_backward>,
                             .scale = kIssued<&Table<T>::scale>,
                             .soft_cap = kIssued<&Table<T>::soft_cap>,
                             .dropout = kIssued<&Table<T>::dropout>,
                             .add = kIssued<&Table<T>::add>,
                             .attention_forward = kIssued<&Table<T>::attention_forward>,
                             .attention_cached = attention_cached<T>,
                             .attention_backward = kIssued<&Table<T>::attention_backward>,
                             .embedding_forward = kIssued<&Table<T>::embedding_forward>,
                             .embedding_backward = kIssued<&Table<T>::embedding_backward>,
                             .embedding_backward_unrounded = kIssued<&Table<T>::embedding_backward_unrounded>,
                             .cross_entropy = kIssued<&Table<T>::cross_entropy>,
                             .cross_entropy_loss = kIssued<&Table<T>::cross_entropy_loss>,
                             .accumulate = kIssued<&Table<T>::accumulate>,
                             .accumulate_all = accumulate_all<T>,
                             .cast_from_float = kIssued<&Table<T>::cast_from_float>,
                             .cast_to_float = kIssued<&Table<T>::cast_to_float>};

constexpr FlatTable kFlatTable = {.adamw = kIssued<&FlatTable::adamw>,
                                  .adam = kIssued<&FlatTable::adam>,
                                  .sgd = kIssued<&FlatTable::sgd>,
                                  .adagrad = kIssued<&FlatTable::adagrad>,
                                  .lion = kIssued<&FlatTable::lion>,
                                  .sum_of_squares = kIssued<&FlatTable::sum_of_squares>,
                                  .set_update = kIssued<&FlatTable::set_update>,
                                  .first_in_window = kIssued<&FlatTable::first_in_window>};

std::mutex choices_mutex;
ProductChoices choices;
void choose_products(const ProductChoices& chosen) {
  const std::lock_guard lock(choices_mutex);
  choices = chosen;
}

// Where any product is named, all must be.
void need_named(const Product& product) {
  const std::lock_guard lock(choices_mutex);
  TRIREME_CHECK(choices.empty() || choices.contains(product), "a product was not named: " + to_string(product));
}

template <class T, class C>
void product(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
             std::int64_t lda, const T* b, std::int64_t ldb, C* c, std::int64_t ldc, const C* addend, const C* bias) {
  (need_reached(a), need_reached(b), need_reached(c), need_reached(addend), need_reached(bias));
  need_named({dtype_of<T>, dtype_of<C>, a_transposed, b_transposed, bias != nullptr, m, n, k, lda, ldb, ldc});
  issue([=] {
    if constexpr (std::is_same_v<T, C>) {
      gemm(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, addend, bias);
    } else {
      gemm_unrounded(a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc, addend != nullptr);
    }
  });
}

constexpr GemmTable kGemmTable = {.f32 = product<float, float>,
                                  .bf16 = product<bfloat16, bfloat16>,
                                  .f16 = product<float16, float16>,
                                  .bf16_unrounded = product<bfloat16, float>,
                                  .f16_unrounded = product<float16, float>};

// TEST_STAND_IN_DEVICES says how many; 1.
int count_devices() {
  const char* number = std::getenv("TEST_STAND_IN_DEVICES");
  return number == nullptr ? 1 : std::atoi(number);
}
thread_local int used = 0;

void copy_now(void* to, const void* from, std::int64_t bytes) {
  run_now([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}
void copy(void* to, const void* from, std::int64_t bytes) {
  if (device_reaches(to) && device_reaches(from)) {
    return issue([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
  }
  synchronize_stream(native_stream());  // as CUDA does where memory is not pinned
  copy_now(to, from, bytes);
}
void zero(void* memory, std::int64_t bytes) {
  need_reached(memory);
  issue([=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); });
}

template <class T>
void fill_rows(const NormalRows& rows, T* out) {
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    for (std::int64_t c = 0; c < rows.columns; ++c) {
      const auto index = rows.first + static_cast<std::uint64_t>(r * rows.pitch + c);
      const double normal = random_normal(rows.seed, rows.stream, index);
      out[r * rows.stride + c] = T(static_cast<float>(rows.mean + rows.scale * normal));
    }
  }
}
void fill_normal_rows(const NormalRows& rows, DType dtype, void* out) {
  need_reached(out);
  issue([=, rows = NormalRows(rows)] {
    if (dtype == DType::f32) fill_rows(rows, static_cast<float*>(out));
    if (dtype == DType::bf16) fill_rows(rows, static_cast<bfloat16*>(out));
    if (dtype == DType::f16) fill_rows(rows, static_cast<float16*>(out));
  });
}

}  // namespace
}  // namespace trireme::stand_in

namespace trireme::kernels {

extern "C" const CudaLibrary trireme_cuda_library;
const CudaLibrary trireme_cuda_library{
    .version = TRIREME_VERSION,
    .count_devices = [](std::string*) { return stand_in::count_devices(); },
    .driver_version = [] { return 13000; },
    .facts = [](int) { return DeviceFacts{.name = "stand-in", .major = 9, .memory_bytes = std::int64_t{4} << 30}; },
    .memory_in_use = [](int) { return stand_in::bytes_in_use(); },
    .use_device = [](int device) { stand_in::used = device; },
    .current_device = [] { return stand_in::used; },
    .copy_now = stand_in::copy_now,
    .allocate = stand_in::allocate,
    .free = stand_in::free,
    .pin = stand_in::pin,
    .unpin = stand_in::unpin,
    .export_memory = [](std::byte*, std::byte*) { return true; },  // its ranks are threads
    .import_memory = [](const std::byte*) -> std::byte* { return nullptr; },
    .close_memory = [](std::byte*) {},
    .reach_device = [](int) { return true; },
    .can_reach = [](int, int) { return true; },
    .make_stream = stand_in::make_stream,
    .destroy_stream = stand_in::destroy_stream,
    .synchronize_stream = stand_in::synchronize_stream,
    .wait = stand_in::wait,
    .make_event = stand_in::make_event,
    .destroy_event = stand_in::destroy_event,
    .record = stand_in::record,
    .synchronize_event = stand_in::synchronize_event,
    .is_reached = stand_in::is_reached,
    .seconds_between = stand_in::seconds_between,
    .stream_scratch_bytes = 0,
    .attention_workspace = [](const AttentionShape& shape, DType dtype,
                              bool backward) { return attention_workspace(shape, dtype, backward, 1); },
    .set_stream = stand_in::set_stream,
    .native_stream = stand_in::native_stream,
    .copy = stand_in::copy,
    .zero = stand_in::zero,
    .release_device = [] {},
    .fill_normal_rows = stand_in::fill_normal_rows,
    .call_on_host = stand_in::call_on_host,
    .raise_flag = stand_in::raise_flag,
    .await_flag = stand_in::await_flag,
    .product_library = [] { return std::string("stand-in"); },
    .measure_product = [](const Product& product) { return static_cast<int>(product.m % 2); },
    .choose_products = stand_in::choose_products,
    .f32 = &stand_in::kTable<float>,
    .bf16 = &stand_in::kTable<bfloat16>,
    .f16 = &stand_in::kTable<float16>,
    .flat = &stand_in::kFlatTable,
    .gemm = &stand_in::kGemmTable};

}  // namespace trireme::kernels
