// The Python package tokenizers, which says what is right (oracle.py).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::data {

bool has_python_oracle();

// Runs oracle.py; a failed test where it fails.
void run_oracle(const std::string& arguments);

// Documents' ids from a file of records.
std::vector<std::vector<std::int32_t>> read_ids(const std::filesystem::path& file);

// A folder with tokenizer.json, and beside it the files ids and text that oracle.py made of the documents: the
// tokenizer must give the same ids and texts, decoded at once and token by token. Shows the first places where it does
// not.
void expect_same_as_oracle(const std::filesystem::path& folder, const std::vector<std::string>& documents);

// Ours beside the expected ids, where they differ first.
std::string first_difference(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& expected);

}  // namespace trireme::data
