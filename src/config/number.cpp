#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>

#include "config/value.h"

namespace trireme::config {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool take_sign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

// [digits][.digits][e[sign]digits], at least one digit before the exponent.
struct Decimal {
  bool negative = false;
  std::string digits;         // all of them, without the point
  std::int64_t exponent = 0;  // of ten, for the last digit
  bool has_point_or_exponent = false;
};

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal result;
  result.negative = take_sign(text);
  result.digits = take_digits(text);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const std::string_view fraction = take_digits(text);
    result.digits += fraction;
    result.exponent -= static_cast<std::int64_t>(fraction.size());
    result.has_point_or_exponent = true;
  }
  if (result.digits.empty()) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const bool negative = take_sign(text);
    const std::string_view digits = take_digits(text);
    if (digits.empty()) return std::nullopt;
    std::int64_t exponent = 0;
    for (const char c : digits) exponent = std::min<std::int64_t>(exponent * 10 + (c - '0'), 1'000'000'000);
    result.exponent += negative ? -exponent : exponent;
    result.has_point_or_exponent = true;
  }
  if (!text.empty()) return std::nullopt;
  return result;
}

std::int64_t to_int64(std::string_view digits, int base, bool negative) {
  std::string text(digits);
  if (negative) text.insert(0, 1, '-');
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) throw std::out_of_range("integer");
  return value;
}

std::optional<std::int64_t> parse_based(std::string_view text, bool negative) {
  const int base = text.starts_with("0x") ? 16 : 8;
  text.remove_prefix(2);
  const std::string_view allowed = base == 16 ? "0123456789abcdefABCDEF" : "01234567";
  if (text.empty() || text.find_first_not_of(allowed) != std::string_view::npos) return std::nullopt;
  return to_int64(text, base, negative);
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::string_view unsigned_text = text;
  const bool negative = take_sign(unsigned_text);
  if (unsigned_text.starts_with("0x") || unsigned_text.starts_with("0o")) return parse_based(unsigned_text, negative);
  std::optional<Decimal> decimal = parse_decimal(text);
  if (!decimal) return std::nullopt;
  std::string& digits = decimal->digits;
  if (!decimal->has_point_or_exponent) {
    if (digits.size() > 1 && digits[0] == '0') return std::nullopt;  // 010 is ten or eight, by the YAML version
    return to_int64(digits, 10, negative);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return 0;
  while (decimal->exponent < 0 && digits.ends_with('0')) {
    digits.pop_back();
    ++decimal->exponent;
  }
  if (decimal->exponent < 0) return std::nullopt;
  if (decimal->exponent > 19) throw std::out_of_range("integer");
  return to_int64(digits + std::string(static_cast<std::size_t>(decimal->exponent), '0'), 10, negative);
}

std::optional<double> parse_number(std::string_view text) {
  std::string_view rest = text;
  const bool negative = take_sign(rest);
  const std::string word = folded(rest);
  if (word == ".inf")
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (word == ".nan") return std::numeric_limits<double>::quiet_NaN();
  if (!parse_decimal(text)) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) throw std::out_of_range("number");
  return negative ? -value : value;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = folded(text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

}  // namespace trireme::config
