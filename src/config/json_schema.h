// The schema of a configuration for editors and checkers of YAML.
#pragma once
#include <string>

namespace trireme::config {

// JSON Schema, draft 2020-12, of our YAML, from the schema table: each key under $defs by its whole name, with type,
// range, words, default and meaning; in its block and, with dots, at the top; names from other tools as deprecated
// ones. It takes the words of the table in any case, as the reader does, and knows no rule between keys, nor what is
// required, as that may stand on the command line.
std::string schema_as_json();

}  // namespace trireme::config
