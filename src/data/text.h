// Prepared text, back as text.
#pragma once
#include <functional>
#include <string_view>

#include "data/dataset.h"
#include "data/tokenizer.h"

namespace trireme::data {

// The split's documents in order, decoded, without their end-of-document marks. The bytes that were prepared, unless
// the tokenizer normalises.
void for_each_document(const Dataset& dataset, const Tokenizer& tokenizer,
                       const std::function<void(std::string_view)>& take);

}  // namespace trireme::data
