// What any configuration text must be before a parser sees it.
#pragma once
#include <cstdint>
#include <string_view>

#include "config/document.h"

namespace trireme::config {

// What may stand in front of the content of a line: YAML's blocks have no tabs there.
enum class Indentation : std::uint8_t { spaces, any };

// Throws Error TR2108 for text over kMaxDocumentBytes, invalid UTF-8, control characters (NUL by name) and, for spaces,
// tabs in the indentation of a line with content.
void check_text(std::string_view text, const PlaceOf& place_of, Indentation indentation = Indentation::spaces);

}  // namespace trireme::config
