// JSON text as the same tree with places that read_document() gives of YAML, under the same limits.
//
// Beside strict JSON: comments (# and // to the end of the line, /* */) and a comma behind the last value. Refused in
// words (TR2108): text without quotes, as HJSON has it; base64 in place of a text; a root that is no object. What is no
// JSON at all is TR2107; a key twice in one object is TR2103.
#pragma once
#include <string>
#include <string_view>

#include "config/document.h"

namespace trireme::config {

// The root is a block. Numbers are scalars without quotes, as they were written.
YamlNode read_json(std::string_view text, const std::string& place);

}  // namespace trireme::config
