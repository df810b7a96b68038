#include "layers/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/kernels.h"
#include "layout/dispatch.h"

namespace trireme {
namespace {

// Frequencies and their arithmetic are in float, as transformers has them: the models were trained so.
using Frequencies = std::vector<float>;

Frequencies plain(std::int64_t D, double theta) {
  Frequencies result;
  for (std::int64_t i = 0; i < D / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(D);
    result.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
  }
  return result;
}

Frequencies llama3(Frequencies frequencies, const RopeScaling& s) {
  const auto old = static_cast<double>(s.original_max_positions);
  const auto factor = static_cast<float>(s.factor), low = static_cast<float>(s.low_frequency_factor);
  const float width = static_cast<float>(s.high_frequency_factor - s.low_frequency_factor);
  for (float& frequency : frequencies) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength > static_cast<float>(old / s.low_frequency_factor)) {
      frequency /= factor;
    } else if (wavelength >= static_cast<float>(old / s.high_frequency_factor)) {
      const float smooth = (static_cast<float>(old) / wavelength - low) / width;
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return frequencies;
}

// The dimension whose frequency turns so often over the original positions.
double dimension_of(double rotations, std::int64_t D, double theta, double positions) {
  return static_cast<double>(D) * std::log(positions / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

Frequencies yarn(Frequencies frequencies, std::int64_t D, const Rope& rope) {
  const RopeScaling& s = rope.scaling;
  const auto old = static_cast<double>(s.original_max_positions);
  double low = dimension_of(s.beta_fast, D, rope.theta, old), high = dimension_of(s.beta_slow, D, rope.theta, old);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(D - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float at = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1 - std::clamp(at, 0.0f, 1.0f);
    const float stretched = 1.0f / (static_cast<float>(s.factor) * (1.0f / frequencies[i]));
    frequencies[i] = stretched * (1 - kept) + frequencies[i] * kept;
  }
  return frequencies;
}

double yarn_amplitude(const RopeScaling& s) {
  const auto scale = [&](double mscale) { return s.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(s.factor) + 1.0; };
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale != 0 && s.mscale_all_dim != 0) return scale(s.mscale) / scale(s.mscale_all_dim);
  return scale(1);
}

double longrope_amplitude(const RopeScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  return s.factor <= 1 ? 1.0
                       : std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_max_positions)));
}

Frequencies divided(Frequencies frequencies, const std::vector<double>& factors) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = 1.0f / (static_cast<float>(factors[i]) * (1.0f / frequencies[i]));
  }
  return frequencies;
}

void check_positive(const std::string& name, double value) {
  if (value > 0 && std::isfinite(value)) return;
  throw Error(1201, name, std::to_string(value) + " is not a positive number");
}

void check_factors(const std::string& name, const std::vector<double>& factors, std::int64_t D) {
  if (std::ssize(factors) != D / 2) {
    throw Error(
        1201, name,
        "has " + std::to_string(factors.size()) + " values, but a head has " + std::to_string(D / 2) + " frequencies",
        "give one factor for each pair of a head's elements");
  }
  for (const double factor : factors) check_positive(name, factor);
}

void check(const RopeScaling& s, std::int64_t positions, std::int64_t D, const std::string& name) {
  using Kind = RopeScaling::Kind;
  if (s.kind == Kind::none) return;
  check_positive(name + ".factor", s.factor);
  if (s.attention_factor) check_positive(name + ".attention_factor", *s.attention_factor);
  if (s.kind == Kind::linear) return;
  // Below 2 the logarithm that longrope divides by is not positive.
  if (s.original_max_positions < 2 || s.original_max_positions > 1 << 22) {
    throw Error(1201, name + ".original_max_position_embeddings",
                std::to_string(s.original_max_positions) + " is outside 2 .. " + std::to_string(1 << 22));
  }
  if (s.kind == Kind::dynamic && positions > s.original_max_positions) {
    throw Error(1201, name,
                "dynamic scaling changes with the length of the running text beyond " +
                    std::to_string(s.original_max_positions) + " positions, and the model is meant for " +
                    std::to_string(positions),
                "lower max_position_embeddings to " + std::to_string(s.original_max_positions) +
                    ", or use yarn, which does not depend on the length");
  }
  if (s.kind == Kind::llama3) {
    check_positive(name + ".low_freq_factor", s.low_frequency_factor);
    check_positive(name + ".high_freq_factor minus low_freq_factor", s.high_frequency_factor - s.low_frequency_factor);
  }
  if (s.kind == Kind::yarn) {
    check_positive(name + ".beta_fast", s.beta_fast);
    check_positive(name + ".beta_slow", s.beta_slow);
  }
  if (s.kind == Kind::longrope) {
    check_factors(name + ".short_factor", s.short_factors, D);
    check_factors(name + ".long_factor", s.long_factors, D);
  }
}

RopeTable table_of(std::int64_t positions, std::int64_t D, const Frequencies& frequencies, double amplitude) {
  std::vector<float> table(positions * D);
  kernels::make_rope_table(positions, D, frequencies.data(), amplitude, table.data());
  return std::make_shared<const kernels::Constants>(std::move(table));
}

void rotate(const Tensor& x, std::int64_t heads, std::int64_t D, const std::int32_t* positions, const RopeTable& table,
            int sign) {
  dispatch(x.dtype, [&]<class T>(T) {
    kernels::table<T>().rope(x.sizes[0], heads, D, x.sizes[1], x.as<T>(), positions, table->data(), sign);
  });
}

}  // namespace

const RopeTable& RopeTables::of(const Batch& batch) const {
  if (long_table == nullptr) return table;
  const std::int32_t* positions = batch.on_host().positions;
  const bool reaches = std::any_of(positions, positions + batch.shape.tokens(),
                                   [this](std::int32_t position) { return position >= boundary; });
  return reaches ? long_table : table;
}

std::int64_t RopeTables::bytes() const {
  std::size_t numel = 0;
  for (const RopeTable& one : {table, long_table}) numel += one == nullptr ? 0 : one->size();
  return static_cast<std::int64_t>(numel * sizeof(float));
}

RopeTables make_rope_tables(std::int64_t positions, std::int64_t D, const Rope& rope, const std::string& name) {
  using Kind = RopeScaling::Kind;
  const RopeScaling& s = rope.scaling;
  check(s, positions, D, name);
  Frequencies frequencies = plain(D, rope.theta);
  RopeTables tables;
  switch (s.kind) {
    case Kind::none:
    case Kind::dynamic: tables.table = table_of(positions, D, frequencies, 1); break;
    case Kind::linear:
      for (float& frequency : frequencies) frequency /= static_cast<float>(s.factor);
      tables.table = table_of(positions, D, frequencies, 1);
      break;
    case Kind::llama3: tables.table = table_of(positions, D, llama3(frequencies, s), 1); break;
    case Kind::yarn: tables.table = table_of(positions, D, yarn(frequencies, D, rope), yarn_amplitude(s)); break;
    case Kind::longrope:
      tables.table = table_of(positions, D, divided(frequencies, s.short_factors), longrope_amplitude(s));
      tables.long_table = table_of(positions, D, divided(frequencies, s.long_factors), longrope_amplitude(s));
      tables.boundary = s.original_max_positions;
      break;
  }
  return tables;
}

void rope_forward(const Tensor& x, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                  const RopeTable& table) {
  rotate(x, heads, D, positions, table, +1);
}

void rope_backward(const Tensor& dx, std::int64_t heads, std::int64_t D, const std::int32_t* positions,
                   const RopeTable& table) {
  rotate(dx, heads, D, positions, table, -1);
}

}  // namespace trireme
