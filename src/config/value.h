// From the words of a configuration to a typed value of a key.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "config/document.h"
#include "config/schema.h"

namespace trireme::config {

// Checks type and range. place is that of the value. Errors: TR2102 not the key's type, TR2105 out of range, TR2190 a
// value that is known but not there yet (also of a not_yet key, unless it says "off": then monostate).
Value read_value(const Key& key, const YamlNode& node, const std::string& place);

// The value that the schema's own text stands for (defaults).
Value parse_default(const Key& key);

// Whole numbers: 12, -3, 0x1F, 0o17, and 5e8 or 3.0 where nothing is lost. none: not an integer, or ambiguous as 010.
// Throws std::out_of_range where it does not fit 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text);

// Decimal numbers as in YAML; .inf and .nan too. none: not a number. Throws std::out_of_range where a double cannot
// hold its magnitude.
std::optional<double> parse_number(std::string_view text);

// true, yes, on and false, no, off in any case.
std::optional<bool> parse_bool(std::string_view text);

// Lower case with "-" as "_": how choices are compared.
std::string folded(std::string_view text);

}  // namespace trireme::config
