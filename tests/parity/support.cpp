#include "parity/support.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "layout/dispatch.h"

namespace trireme::parity {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr auto kGuard = std::byte{0xa5};

std::int64_t numel_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

Buffer::Buffer(std::int64_t bytes)
    : bytes_(bytes), memory_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + kGuardBytes + 63) / 64 * 64))) {
  std::memset(memory_.get(), 0xff, bytes_);  // NaN in every dtype
  std::memset(memory_.get() + bytes_, static_cast<int>(kGuard), kGuardBytes);
}

Buffer::Buffer(const Value& value, DType dtype) : Buffer(std::ssize(value.data) * size_of(dtype)) {
  sizes_ = value.sizes;
  const std::int64_t columns = sizes_.empty() ? 1 : sizes_.back();
  tensor_ = Tensor(memory_.get(), dtype, {columns == 0 ? 0 : std::ssize(value.data) / columns, columns});
  dispatch(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < value.data.size(); ++i) {
      if constexpr (std::is_same_v<T, double>) {
        tensor_.as<T>()[i] = value.data[i];
      } else {
        tensor_.as<T>()[i] = T(static_cast<float>(value.data[i]));
      }
    }
  });
}

Value Buffer::read() const {
  Value value{sizes_, {}};
  dispatch(tensor_.dtype, [&]<class T>(T) {
    const T* data = tensor_.as<T>();
    for (std::int64_t i = 0; i < tensor_.numel(); ++i) value.data.push_back(static_cast<double>(data[i]));
  });
  return value;
}

Buffer::~Buffer() {
  if (!memory_) return;
  for (std::int64_t i = 0; i < kGuardBytes; ++i) {
    if (memory_[bytes_ + i] == kGuard) continue;
    ADD_FAILURE() << "written " << i << " bytes behind the end of a buffer of " << bytes_ << " bytes";
    break;
  }
}

Value Random::normal(std::vector<std::int64_t> sizes, DType dtype, double deviation, double mean) {
  std::normal_distribution<double> distribution(mean, deviation);
  Value value{std::move(sizes), {}};
  value.data.resize(numel_of(value.sizes));
  for (double& x : value.data) x = rounded(distribution(engine_), dtype);
  return value;
}

namespace {

// Half of the cases are plain Llamas; the others have what the families have, each at random, and sizes at which no
// gradient is a difference of nearly equal numbers (a norm of two elements, one visible position).
void random_family(LlamaConfig& c, BatchShape& shape, Random& random) {
  if (random.below(2) == 0) return;
  c.hidden_size = random.one_of<std::int64_t>({35, 63});
  c.intermediate_size = random.one_of<std::int64_t>({45, 70});
  c.head_dim = random.one_of<std::int64_t>({8, 34, 64});
  shape.sequence = std::max<std::int64_t>(shape.sequence, 7);
  const auto coin = [&random] { return random.below(2) == 0; };
  c.activation = random.one_of({Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu});
  c.qkv_bias = coin(), c.attention_output_bias = coin(), c.mlp_bias = coin();
  c.query_key_norms = coin(), c.one_plus_norm_weights = coin(), c.post_norms = coin();
  if (coin()) c.embedding_scale = 1.5;
  if (coin()) c.attention_scale = 0.3;
  if (coin()) c.attention_soft_cap = 1.25;
  if (coin()) c.logit_soft_cap = 2.5;
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    c.windows.push_back(random.one_of<std::int64_t>({0, 5, 40, 500}));
  }
  if (coin()) c.windowed_rope = Rope{50.0, {}};
}

}  // namespace

Case random_case(Random& random) {
  Case c;
  LlamaConfig& config = c.config;
  BatchShape& shape = c.inputs.shape;
  shape.sequence = random.one_of<std::int64_t>({1, 7, 33, 129});
  shape.batch = 1 + random.below(3);
  config.vocabulary = random.one_of<std::int64_t>({13, 257, 1000});
  config.hidden_size = random.one_of<std::int64_t>({5, 21, 35, 63});
  config.intermediate_size = random.one_of<std::int64_t>({3, 16, 45, 70});
  config.num_layers = 1 + random.below(2);
  config.num_key_value_heads = 1 + random.below(2);
  config.num_heads = config.num_key_value_heads * (1 + random.below(3));
  config.head_dim = random.one_of<std::int64_t>({2, 6, 8, 34, 64});
  config.max_positions = 200;
  config.rope.theta = random.one_of({100.0, 10000.0});
  config.tie_word_embeddings = random.below(2) == 0;
  config.loss_chunk_tokens = random.one_of<std::int64_t>({1, 32, 50, 1024});
  random_family(config, shape, random);
  const bool documents = random.below(2) == 0;
  const std::int64_t first_position = random.below(2) * random.below(70);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    std::int64_t start = 0;
    for (std::int64_t t = 0; t < shape.sequence; ++t) {
      if (documents && random.below(20) == 0) start = t;
      c.inputs.ids.push_back(static_cast<std::int32_t>(random.below(random.below(2) ? config.vocabulary : 3)));
      const bool ignored = random.below(5) == 0;
      c.inputs.labels.push_back(static_cast<std::int32_t>(ignored ? -1 : random.below(config.vocabulary)));
      c.inputs.positions.push_back(static_cast<std::int32_t>(documents ? t - start : t + first_position));
      c.inputs.starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return c;
}

std::string to_string(const Case& c) {
  const LlamaConfig& m = c.config;
  std::string text;
  const auto add = [&](const char* name, std::int64_t value) { text += name + std::to_string(value); };
  add("B=", c.inputs.shape.batch), add(" T=", c.inputs.shape.sequence), add(" C=", m.hidden_size);
  add(" H=", m.num_heads), add(" K=", m.num_key_value_heads), add(" D=", m.head_dim), add(" F=", m.intermediate_size);
  add(" V=", m.vocabulary), add(" L=", m.num_layers), add(" chunk=", m.loss_chunk_tokens);
  add(" activation=", static_cast<int>(m.activation)),
      add(" biases=", m.qkv_bias + 2 * m.attention_output_bias + 4 * m.mlp_bias);
  add(" norms=", m.query_key_norms + 2 * m.one_plus_norm_weights + 4 * m.post_norms);
  add(" caps=", (m.attention_soft_cap > 0) + 2 * (m.logit_soft_cap > 0));
  for (const std::int64_t window : m.windows) add(" window=", window);
  add(" tied=", m.tie_word_embeddings), add(" first position=", c.inputs.positions[0]);
  add(" last start=", c.inputs.starts.back());
  return text;
}

double relative_difference(const Value& a, const Value& b) {
  EXPECT_EQ(a.data.size(), b.data.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    difference += (a.data[i] - b.data[i]) * (a.data[i] - b.data[i]);
    norm += b.data[i] * b.data[i];
  }
  return std::sqrt(norm > 0 ? difference / norm : difference);
}

double root_mean_square(const Value& value) {
  double sum = 0;
  for (const double x : value.data) sum += x * x;
  return std::sqrt(sum / static_cast<double>(value.data.size()));
}

std::vector<Value> random_parameters(const std::vector<ParameterSpec>& specs, const std::vector<int>& indices,
                                     DType dtype, Random& random) {
  std::vector<Value> values;
  for (const int index : indices) {
    const ParameterSpec& spec = specs[index];
    const bool norm = spec.rows == 1;
    const double deviation = norm ? 0.2 : 1.0 / std::sqrt(static_cast<double>(spec.columns));
    Value value = random.normal({spec.rows, spec.columns}, dtype, deviation, norm ? 1.0 : 0.0);
    // Padding is zero, as in a model.
    std::int64_t used = 0;
    for (const LogicalTensor& tensor : spec.logical) used = std::max(used, tensor.box.row_end);
    std::fill(value.data.begin() + used * spec.columns, value.data.end(), 0.0);
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace trireme::parity
