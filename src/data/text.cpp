#include "data/text.h"

namespace trireme::data {

void for_each_document(const Dataset& dataset, const Tokenizer& tokenizer,
                       const std::function<void(std::string_view)>& take) {
  std::uint64_t begin = 0;
  for (std::uint64_t document = 0; document < dataset.num_documents(); ++document) {
    const std::uint64_t end = dataset.document_end(document);
    const std::vector<std::int32_t> ids = dataset.tokens(begin, end - 1);
    take(tokenizer.decode(ids.data(), ids.size()));
    begin = end;
  }
}

}  // namespace trireme::data
