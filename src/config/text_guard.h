// What any configuration text must be before a parser sees it.
#pragma once
#include <string_view>

#include "config/document.h"

namespace trireme::config {

// Throws Error TR2108 for text over kMaxDocumentBytes, invalid UTF-8, control characters (NUL
// by name) and tabs in the indentation of a line with content.
void check_text(std::string_view text, const PlaceOf& place_of);

}  // namespace trireme::config
