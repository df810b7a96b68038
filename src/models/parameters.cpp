#include "models/parameters.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(const char* name, double value, const char* what) {
  throw Error(1201, std::string("model.") + name, std::to_string(value) + what);
}

}  // namespace

void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(1201, std::string("model.") + name,
              std::to_string(value) + " is outside " + std::to_string(least) + " .. " + std::to_string(most));
}

void check_positive(const char* name, double value) {
  if (!(value > 0 && std::isfinite(value))) refuse(name, value, " is not a positive number");
}

void check_not_negative(const char* name, double value) {
  if (!(value >= 0 && std::isfinite(value))) refuse(name, value, " is not zero or a positive number");
}

void check_probability(const char* name, double value) {
  if (!(value >= 0 && value < 1)) refuse(name, value, " is not a probability below 1");
}

void check_compute_dtype(DType dtype) {
  if (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64) return;
  throw Error(1201, "compute dtype", std::string(to_string(dtype)) + " is not one that models compute in",
              "take float32, bfloat16 or float16");
}

LogicalTensor rows_of(std::string name, std::int64_t first, std::int64_t rows, std::int64_t columns) {
  return {std::move(name), {rows, columns}, {first, first + rows, 0, columns}};
}

LogicalTensor part_of_row(std::string name, std::int64_t first, std::int64_t columns) {
  return {std::move(name), {columns}, {0, 1, first, first + columns}};
}

ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, double init_std,
                     std::vector<LogicalTensor> logical) {
  return {std::move(name), rows, columns, std::move(logical), Init::normal, init_std, true, true};
}

ParameterSpec vector(std::string name, std::int64_t columns, Init init, std::vector<LogicalTensor> logical) {
  return {std::move(name), 1, columns, std::move(logical), init, 0.0, false, true};
}

void give_float_gradients(std::vector<ParameterSpec>& parameters) {
  for (ParameterSpec& parameter : parameters) parameter.float_gradient = parameter.decay;
}

std::int64_t padded_vocabulary(std::int64_t vocabulary) {
  constexpr std::int64_t kPadding = 128;
  return (vocabulary + kPadding - 1) / kPadding * kPadding;
}

int UnitParameters::add(ParameterSpec parameter) {
  chain_.parameters.push_back(std::move(parameter));
  return share(static_cast<int>(chain_.parameters.size()) - 1);
}

int UnitParameters::share(int parameter) {
  indices_.push_back(parameter);
  return static_cast<int>(indices_.size()) - 1;
}

}  // namespace trireme
