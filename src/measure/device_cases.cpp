#include "measure/device_cases.h"

#include <fmt/format.h>

#include <random>

#include "kernels/kernels.h"

namespace trireme::measure {
namespace {

using kernels::Table;

constexpr std::int64_t kRows = 16384, kTurn = 4096;  // positions of a step, and of a sample
constexpr std::int64_t kLlamaVocabulary = 128256, kGpt2Vocabulary = 50257, kGpt2Rows = 50304;

constexpr const char* kShort[] = {"f32", "bf16", "f16"};

template <class T>
class Cases {
 public:
  std::vector<Case> take() && { return std::move(cases_); }

  void elementwise(std::int64_t n) {
    const std::string sizes = fmt::format("{}", n);
    add("add", sizes, 3 * n, {mine(n), mine(n), mine(n)}, [=](auto a) { table().add(n, a(0), a(1), a(2)); });
    add("scale", sizes, 2 * n, {mine(n)}, [=](auto a) { table().scale(n, 1.01, a(0)); });
    if (sizeof(T) == sizeof(float)) return;
    const auto both = n * (kSize + 4) / kSize;
    add("accumulate", sizes, both + 4 * n / kSize, {mine(n), floats(n)},
        [=](auto a) { table().accumulate(n, a(0), a.f32(1), false); });
    add("cast_from_float", sizes, both, {floats(n), mine(n)},
        [=](auto a) { table().cast_from_float(n, a.f32(0), a(1)); });
    add("cast_to_float", sizes, both, {mine(n), floats(n)}, [=](auto a) { table().cast_to_float(n, a(0), a.f32(1)); });
  }

  void rmsnorm(std::int64_t C, std::int64_t heads = 1, std::int64_t row_stride = 0) {
    const kernels::NormShape s{
        .N = kRows, .C = C, .heads = heads, .row_stride = row_stride == 0 ? heads * C : row_stride};
    const std::int64_t n = kRows * heads * C, all = kRows * s.row_stride, scales = kRows * heads;
    const std::string sizes = heads == 1 ? of(kRows, C) : fmt::format("{} of {}", of(kRows, heads, C), s.row_stride);
    const std::int64_t rest = C + scales * 4 / kSize;
    add("rmsnorm_forward", sizes, 2 * n + rest, {mine(all), mine(C), mine(all), floats(scales)},
        [=](auto a) { table().rmsnorm_forward(s, a(0), a(1), 1e-5, a(2), a.f32(3)); });
    add("rmsnorm_backward", sizes, 3 * n + rest, {mine(all), mine(C), floats(scales), mine(all), mine(all), mine(C)},
        [=](auto a) { table().rmsnorm_backward(s, a(0), a(1), a.f32(2), a(3), nullptr, a(4), a(5), true, nullptr); });
    add("rmsnorm_backward_add", sizes, 4 * n + rest,
        {mine(all), mine(C), floats(scales), mine(all), mine(all), mine(C)},
        [=](auto a) { table().rmsnorm_backward(s, a(0), a(1), a.f32(2), a(3), a(4), a(4), a(5), true, nullptr); });
  }

  void layernorm(std::int64_t C) {
    const std::int64_t n = kRows * C, rest = 2 * C + 2 * kRows * 4 / kSize;
    add("layernorm_forward", of(kRows, C), 2 * n + rest,
        {mine(n), mine(C), mine(C), mine(n), floats(kRows), floats(kRows)},
        [=](auto a) { table().layernorm_forward(kRows, C, a(0), a(1), a(2), 1e-5, a(3), a.f32(4), a.f32(5)); });
    const std::vector<Array> arrays = {mine(n), mine(C), floats(kRows), floats(kRows),
                                       mine(n), mine(n), mine(C),       mine(C)};
    for (const bool adds : {false, true}) {
      add(adds ? "layernorm_backward_add" : "layernorm_backward", of(kRows, C), (adds ? 4 : 3) * n + rest, arrays,
          [=](auto a) {
            table().layernorm_backward(kRows, C, a(0), a(1), nullptr, a.f32(2), a.f32(3), a(4), adds ? a(5) : nullptr,
                                       a(5), a(6), true, a(7), true, nullptr);
          });
    }
  }

  void glu(std::int64_t F) {
    const std::int64_t n = kRows * F;
    add("glu_forward", of(kRows, F), 3 * n, {mine(2 * n), mine(n)},
        [=](auto a) { table().glu_forward(Activation::silu, kRows, F, a(0), a(1)); });
    add("glu_backward", of(kRows, F), 5 * n, {mine(2 * n), mine(n), mine(2 * n)},
        [=](auto a) { table().glu_backward(Activation::silu, kRows, F, a(0), a(1), a(2), nullptr); });
  }

  void activation(Activation activation, const std::string& name, std::int64_t F) {
    const std::int64_t n = kRows * F;
    add(name + "_forward", of(kRows, F), 2 * n, {mine(n), mine(n)},
        [=](auto a) { table().activation_forward(activation, n, a(0), a(1)); });
    add(name + "_backward", of(kRows, F), 3 * n, {mine(n), mine(n)},
        [=](auto a) { table().activation_backward(activation, n, a(0), a(1), a(1), nullptr); });
  }

  void bias(std::int64_t C) {
    const std::int64_t n = kRows * C;
    add("bias_forward", of(kRows, C), 2 * n + C, {mine(C), mine(n)},
        [=](auto a) { table().bias_forward(kRows, C, a(0), a(1), a(1)); });
    add("bias_backward", of(kRows, C), n + C, {mine(n), mine(C)},
        [=](auto a) { table().bias_backward(kRows, C, a(0), a(1), true); });
  }

  void rope(std::int64_t heads, std::int64_t D, std::int64_t row_stride) {
    std::vector<std::int32_t> turns(kRows);
    for (std::int64_t n = 0; n < kRows; ++n) turns[n] = static_cast<std::int32_t>(n % kTurn);
    const auto positions = keep<std::int32_t>(turns);
    add("rope", fmt::format("{} of {}", of(kRows, heads, D), row_stride), 2 * kRows * heads * D + kTurn * D * 4 / kSize,
        {mine(kRows * row_stride), floats(kTurn * D)},
        [=](auto a) { table().rope(kRows, heads, D, row_stride, a(0), positions.get(), a.f32(1), 1); });
  }

  void dropout(std::int64_t C) {
    constexpr std::int64_t kSamples = kRows / 1024;
    const std::int64_t n = kRows * C;
    const auto keys = keep<std::uint64_t>(std::vector<std::uint64_t>(kSamples, 0x123456789abcdefull));
    add("dropout", of(kRows, C), 2 * n, {mine(n), mine(n)}, [=](auto a) {
      table().dropout(kSamples, n / kSamples, {.probability = 0.1, .keys = keys.get(), .stream = 7}, a(0), a(1));
    });
  }

  void cross_entropy(std::int64_t V, std::int64_t stride) {
    constexpr std::int64_t kChunk = 4096;
    const auto labels = keep<std::int32_t>(random_ids(kChunk, V));
    const auto total = keep<double>({0});
    const std::string sizes = fmt::format("{} of {}", of(kChunk, V), stride);
    add("cross_entropy", sizes, 2 * kChunk * V, {mine(kChunk * stride)},
        [=](auto a) { table().cross_entropy(kChunk, V, stride, 0, a(0), labels.get(), 1e-4, total.get()); });
    add("cross_entropy_loss", sizes, kChunk * V, {mine(kChunk * stride)},
        [=](auto a) { table().cross_entropy_loss(kChunk, V, stride, a(0), labels.get(), total.get()); });
  }

  void embedding(std::int64_t V, std::int64_t C) {
    const std::int64_t n = kRows * C;
    const auto random = keep<std::int32_t>(random_ids(kRows, V));
    const auto one = keep<std::int32_t>(std::vector<std::int32_t>(kRows, 17));
    const std::shared_ptr<std::byte> workspace =
        on_device(std::vector<std::uint8_t>(kernels::embedding_workspace(kRows, V, C)));
    add("embedding_forward", of(kRows, C), 2 * n, {mine(V * C), mine(n)},
        [=](auto a) { table().embedding_forward(kRows, C, random.get(), a(0), a(1)); });
    add("embedding_backward", of(kRows, C), n + V * C, {mine(n), mine(V * C)},
        [=](auto a) { table().embedding_backward(kRows, C, V, random.get(), a(0), a(1), false, workspace.get()); });
    add("embedding_backward", of(kRows, C) + ", one id", n + V * C, {mine(n), mine(V * C)},
        [=](auto a) { table().embedding_backward(kRows, C, V, one.get(), a(0), a(1), false, workspace.get()); });
  }

 private:
  // What a launch gets: its arrays.
  struct Arrays {
    std::byte* const* places;
    T* operator()(int i) const { return reinterpret_cast<T*>(places[i]); }
    float* f32(int i) const { return reinterpret_cast<float*>(places[i]); }
  };

  static constexpr std::int64_t kSize = sizeof(T);
  static const Table<T>& table() { return kernels::table<T>(); }
  static Array mine(std::int64_t count) { return {dtype_of<T>, count}; }
  static Array floats(std::int64_t count) { return {DType::f32, count}; }
  static std::string of(std::int64_t N, std::int64_t C) { return fmt::format("{} x {}", N, C); }
  static std::string of(std::int64_t N, std::int64_t heads, std::int64_t C) {
    return fmt::format("{} x {} x {}", N, heads, C);
  }
  static std::vector<std::int32_t> random_ids(std::int64_t N, std::int64_t V) {
    std::mt19937_64 engine(1);
    std::vector<std::int32_t> ids(N);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(V));
    return ids;
  }
  template <class U>
  static std::shared_ptr<U> keep(const std::vector<U>& values) {
    const std::shared_ptr<std::byte> memory = on_device(values);
    return {memory, reinterpret_cast<U*>(memory.get())};
  }
  template <class Run>
  void add(std::string kernel, std::string sizes, std::int64_t elements, std::vector<Array> arrays, Run run) {
    cases_.push_back({std::move(kernel), kShort[static_cast<int>(dtype_of<T>)], std::move(sizes), elements * kSize,
                      std::move(arrays), [run](std::byte* const* places) { run(Arrays{places}); }});
  }
  std::vector<Case> cases_;
};

void append(std::vector<Case>& cases, std::vector<Case> more) {
  cases.insert(cases.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

template <class T>
std::vector<Case> sums_of_squares(std::int64_t n) {
  const auto sum = std::shared_ptr<std::byte>(on_device(std::vector<kernels::ExactSum>(1)));
  return {{"sum_of_squares",
           kShort[static_cast<int>(dtype_of<T>)],
           fmt::format("{}", n),
           n * static_cast<std::int64_t>(sizeof(T)),
           {{dtype_of<T>, n}},
           [=](std::byte* const* a) {
             kernels::flat_table().sum_of_squares(n, a[0], dtype_of<T>,
                                                  reinterpret_cast<kernels::ExactSum*>(sum.get()));
           }}};
}

std::vector<Case> optimizers(std::int64_t n) {
  const auto update = std::shared_ptr<std::byte>(on_device(std::vector<kernels::Update>(1)));
  const kernels::OptimizerArguments arguments{.learning_rate = 1e-3,
                                              .beta1 = 0.9,
                                              .beta2 = 0.95,
                                              .eps = 1e-8,
                                              .weight_decay = 0.1,
                                              .bias_correction1 = 0.5,
                                              .bias_correction2 = 0.5};
  const Array f32{DType::f32, n}, positive{DType::f32, n, Kind::positive}, bf16{DType::bf16, n};
  return {{"adamw",
           "f32",
           fmt::format("{}", n),
           n * (6 * 4 + 4 + 2),
           {f32, f32, positive, f32, bf16},
           [=](std::byte* const* a) {
             const auto floats = [a](int i) { return reinterpret_cast<float*>(a[i]); };
             kernels::flat_table().adamw(arguments, reinterpret_cast<kernels::Update*>(update.get()),
                                         {.n = n,
                                          .master = floats(0),
                                          .m = floats(1),
                                          .v = floats(2),
                                          .gradient = a[3],
                                          .gradient_dtype = DType::f32,
                                          .weights = a[4],
                                          .weights_dtype = DType::bf16});
           }}};
}

}  // namespace

Case copy_case(std::int64_t elements) {
  return {"copy",
          "bf16",
          fmt::format("{}", elements),
          4 * elements,
          {{DType::bf16, elements}, {DType::bf16, elements}},
          [=](std::byte* const* a) { kernels::copy(a[1], a[0], 2 * elements); }};
}

std::vector<Case> device_cases() {
  Cases<bfloat16> half;
  std::vector<Case> cases;
  for (const std::int64_t C : {2048, 4096}) cases.push_back(copy_case(kRows * C));
  half.elementwise(kRows * 2048);
  for (const std::int64_t C : {768, 2048, 3072, 4096}) half.rmsnorm(C);
  half.rmsnorm(128, 32, 6144);  // queries before their product with keys
  for (const std::int64_t C : {768, 1600}) half.layernorm(C);
  for (const std::int64_t F : {8192, 14336}) half.glu(F);
  half.activation(Activation::gelu_tanh, "gelu_tanh", 3072);
  for (const std::int64_t C : {768, 3072}) half.bias(C);
  half.rope(40, 64, 3072);
  half.rope(40, 128, 6144);
  for (const std::int64_t C : {768, 1600}) half.dropout(C);
  half.cross_entropy(kLlamaVocabulary, kLlamaVocabulary);
  half.cross_entropy(kGpt2Vocabulary, kGpt2Rows);
  half.embedding(kLlamaVocabulary, 2048);
  Cases<float> single;
  single.elementwise(kRows * 2048);
  single.rmsnorm(2048);
  single.layernorm(768);
  single.glu(8192);
  single.rope(40, 64, 3072);
  single.cross_entropy(kLlamaVocabulary, kLlamaVocabulary);
  append(cases, std::move(half).take());
  append(cases, std::move(single).take());
  constexpr std::int64_t kParameters = std::int64_t{1} << 26;
  append(cases, optimizers(kParameters));
  append(cases, sums_of_squares<float>(kParameters));
  append(cases, sums_of_squares<bfloat16>(kParameters));
  return cases;
}

}  // namespace trireme::measure
