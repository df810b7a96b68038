// What a command prints on standard output. Losing it is an error: a full disk must not look like success.
#pragma once
#include <string_view>

namespace trireme::cli {

void print(std::string_view text);  // Error TR3021
void flush_output();                // Error TR3021; at the end of a command, and where somebody is reading along

}  // namespace trireme::cli
