// Tokens drawn at random are prepared data like any other.
#include "data/random_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/dataset.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

TEST(RandomTokens, AreADataSetOfAllIdsOfTheVocabulary) {
  for (const std::int64_t vocabulary : {300, 70000}) {  // ids of two bytes, and of four
    const TemporaryFolder folder, again, other;
    const std::uint64_t count = 1'000'003;
    data::write_random_tokens(folder.path(), vocabulary, count, 7);
    data::write_random_tokens(again.path(), vocabulary, count, 7);
    data::write_random_tokens(other.path(), vocabulary, count, 8);
    const data::Dataset set(folder.path(), "train", {.sequence_length = 64});
    EXPECT_EQ(set.vocabulary(), vocabulary);
    EXPECT_EQ(set.num_tokens(), count);
    const std::vector<std::int32_t> tokens = set.tokens(0, count);
    EXPECT_EQ(tokens, data::Dataset(again.path(), "train", {.sequence_length = 64}).tokens(0, count));
    EXPECT_NE(tokens, data::Dataset(other.path(), "train", {.sequence_length = 64}).tokens(0, count));
    double mean = 0;
    for (const std::int32_t token : tokens) mean += token;
    mean /= static_cast<double>(count);
    EXPECT_NEAR(mean / static_cast<double>(vocabulary), 0.5, 0.005);
    EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), vocabulary);
    EXPECT_GT(*std::max_element(tokens.begin(), tokens.end()), vocabulary * 99 / 100);
  }
}

}  // namespace
}  // namespace trireme::testing
