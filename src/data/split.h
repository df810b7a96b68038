// A split of prepared data, or a part of one, in the notation of Hugging Face's `datasets`: train, train[:1000],
// heldout[10%:20%], train[-100:].
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme::data {

struct Split {
  std::string name;                      // "train", "heldout"
  std::optional<std::int64_t> from, to;  // documents, below 0 from the end; or percent, -100 to 100
  bool percent = false;
  bool is_whole() const { return !from && !to; }
};

// Error TR4025, at place, where the text is no split.
Split parse_split(const std::string& text, const std::string& place);

struct DocumentRange {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const DocumentRange&) const = default;
};

// As `datasets` takes it: a percentage is rounded to the nearest document, half to even; what lies outside is cut off.
// Empty where nothing is left.
DocumentRange documents_of(const Split& split, std::uint64_t num_documents);

}  // namespace trireme::data
