#include "measure/model_work.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "engine/memory.h"
#include "layers/attention.h"
#include "layers/linear.h"
#include "layers/memory.h"
#include "layout/float16.h"
#include "measure/device.h"
#include "train/product_ways.h"

namespace trireme::measure {
namespace {

constexpr double kWeightScale = 0.02;
constexpr std::int64_t kCopyBytes = std::int64_t{1} << 30;

struct Work {
  WorkRow row;
  std::function<void()> run;
};

bool is_input_major(const ModelShape& shape, const Product& product) {
  return shape.input_major && std::string_view(product.name) != "head";
}

// Works and the memory that they work on, which goes with this.
class Works {
 public:
  Works(const ModelShape& shape, const WorkOptions& options) : shape_(shape), options_(options) {
    if (options.products) add_products();
    if (options.attention) add_attention();
    if (options.copy) add_copy();
  }
  const std::vector<Work>& all() const { return works_; }

 private:
  std::byte* allocate(std::int64_t bytes) {
    const auto kind = options_.on_device ? engine::MemoryKind::device : engine::MemoryKind::host;
    return memory_.emplace_back(bytes, kind).at(0);
  }

  // Random numbers: products of zeros are faster, for they take less power.
  Tensor filled(double scale, std::initializer_list<std::int64_t> sizes) {
    const Tensor tensor(allocate(Tensor(nullptr, DType::bf16, sizes).bytes()), DType::bf16, sizes);
    std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(tensor.numel(), 1 << 18)));
    fill_normal(1, memory_.size(), 0, scale, values);
    const std::vector<bfloat16> rounded(values.begin(), values.end());
    auto* data = static_cast<std::byte*>(tensor.data);
    auto done = static_cast<std::int64_t>(std::as_bytes(std::span(rounded)).size());
    copy(data, rounded.data(), done);
    for (; done < tensor.bytes(); done *= 2) copy(data + done, data, std::min(done, tensor.bytes() - done));
    return tensor;
  }
  void copy(void* to, const void* from, std::int64_t bytes) const {
    if (options_.on_device) return kernels::copy_now(to, from, bytes);
    kernels::copy(to, from, bytes);
  }

  void add_products() {
    for (const Product& p : products_of(shape_, options_.micro_batch.tokens())) {
      const bool input_major = is_input_major(shape_, p);
      LinearWeights w;
      w.weight =
          input_major ? filled(kWeightScale, {p.inputs, p.outputs}) : filled(kWeightScale, {p.outputs, p.inputs});
      w.input_major = input_major;
      const Tensor x = filled(1, {p.rows, p.inputs}), dx = filled(1, {p.rows, p.inputs});
      const Tensor y = filled(1, {p.rows, p.outputs}), dy = filled(1, {p.rows, p.outputs});
      Tensor dw = w.weight;
      dw.data = allocate(dw.bytes());
      const auto add = [&](const char* part, std::int64_t m, std::int64_t n, std::int64_t k,
                           std::function<void()> run) {
        works_.push_back({{.work = p.name,
                           .part = part,
                           .m = m,
                           .n = n,
                           .k = k,
                           .times = p.times,
                           .flops = 2 * static_cast<double>(m) * static_cast<double>(n * k)},
                          std::move(run)});
      };
      add("forward", p.rows, p.outputs, p.inputs, [=] { linear_forward(x, w, y); });
      add("input gradient", p.rows, p.inputs, p.outputs, [=] { linear_backward_input(dy, w, dx); });
      add("weight gradient", dw.sizes[0], dw.sizes[1], p.rows, [=] { linear_backward_weight(dy, x, w, {{dw}, {}}); });
    }
  }

  void add_attention() {
    const BatchShape& batch = options_.micro_batch;
    const AttentionShape s{.B = batch.batch,
                           .T = batch.sequence,
                           .H = shape_.H,
                           .K = shape_.K,
                           .D = shape_.D,
                           .scale = 1 / std::sqrt(static_cast<double>(shape_.D)),
                           .deterministic = options_.deterministic};
    const std::int64_t N = batch.tokens();
    const Tensor qkv = filled(1, {N, s.qkv_width()}), dqkv = filled(1, {N, s.qkv_width()});
    const Tensor out = filled(1, {N, s.H * s.D}), dout = filled(1, {N, s.H * s.D});
    const Tensor lse(allocate(s.B * s.H * s.T * size_of(DType::f32)), DType::f32, {s.B, s.H, s.T});
    const std::int64_t scratch = [&] {
      const kernels::ForDevice sizes(options_.on_device ? 0 : -1);
      return attention_workspace_bytes(s, DType::bf16, Phase::backward, kernels::num_threads());
    }();
    const Tensor workspace(allocate(scratch), DType::u8, {scratch});
    starts_.assign(static_cast<std::size_t>(N), 0);
    const std::int32_t* starts = options_.on_device ? nullptr : starts_.data();
    const auto add = [&](const char* part, double products, std::function<void()> run) {
      works_.push_back({{.work = "attention",
                         .part = part,
                         .m = s.B,
                         .n = s.T,
                         .k = s.D,
                         .times = static_cast<double>(shape_.L),
                         .flops = products * static_cast<double>(N * s.T * s.H * s.D)},  // half of the pairs
                        std::move(run)});
    };
    add("forward", 2, [=] { attention_forward(s, {}, qkv, starts, out, lse, workspace); });
    add("backward", 5, [=] { attention_backward(s, {}, qkv, starts, out, lse, dout, dqkv, workspace); });
  }

  void add_copy() {
    const std::int64_t bytes = options_.on_device ? kCopyBytes : kCopyBytes / 64;
    const Tensor from = filled(1, {bytes / 2});
    std::byte* to = allocate(bytes);
    works_.push_back(
        {{.work = "copy", .bytes = 2 * static_cast<double>(bytes)}, [=] { kernels::copy(to, from.data, bytes); }});
  }

  const ModelShape& shape_;
  const WorkOptions& options_;
  std::vector<engine::Memory> memory_;
  std::vector<std::int32_t> starts_;
  std::vector<Work> works_;
};

// In the ways in which a run computes them.
void choose_products(const ModelShape& shape, const WorkOptions& options) {
  std::vector<kernels::Product> all;
  for (const Product& p : products_of(shape, options.micro_batch.tokens())) {
    const bool input_major = is_input_major(shape, p);
    const auto own = linear_products(DType::bf16, DType::bf16, p.rows, p.inputs, p.outputs, input_major, false);
    all.insert(all.end(), own.begin(), own.end());
  }
  std::vector<std::string> notices;
  kernels::choose_products(train::find_product_ways(all, {}, notices).of(all));
}

}  // namespace

std::vector<WorkRow> measure_work(const ModelShape& shape, const WorkOptions& options) {
  const Place place(options.on_device ? 0 : -1);
  if (options.on_device && options.products) choose_products(shape, options);
  const Works works(shape, options);
  std::vector<std::function<void()>> runs;
  for (const Work& work : works.all()) runs.push_back(work.run);
  time_in_turn(runs, options.seconds / 4, place.stream());
  const std::vector<Timing> timings = time_in_turn(runs, 3 * options.seconds / 4, place.stream());
  std::vector<WorkRow> rows;
  for (std::size_t i = 0; i < timings.size(); ++i) {
    rows.push_back(works.all()[i].row);
    rows.back().seconds = timings[i];
  }
  return rows;
}

StepRates step_rates(const std::vector<WorkRow>& rows) {
  StepRates rates;
  for (const WorkRow& row : rows) {
    if (row.work == "copy") {
      rates.copy_bytes_per_s = row.bytes / row.seconds.median;
    } else {
      (row.work == "attention" ? rates.attention_s : rates.products_s) += row.times * row.seconds.median;
    }
  }
  return rates;
}

}  // namespace trireme::measure
