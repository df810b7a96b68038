// What a GPT-2 declares, and what it refuses. That it computes the right thing is shown in tests/parity and
// tests/families.
#include "models/gpt2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "support/expect_error.h"

namespace trireme {
namespace {

Gpt2Config small_gpt2() {
  Gpt2Config c;
  c.vocabulary = 130;
  c.hidden_size = 12;
  c.num_layers = 2;
  c.num_heads = 3;
  c.max_positions = 16;
  return c;
}

const ParameterSpec& parameter_of(const Chain& chain, const std::string& logical) {
  for (const ParameterSpec& parameter : chain.parameters) {
    if (parameter.logical[0].name == logical) return parameter;
  }
  throw std::runtime_error("no parameter " + logical);
}

// Conv1D matrices lie as Hugging Face stores them, so importers copy them.
TEST(Gpt2, StoresItsMatricesInputMajor) {
  const Chain chain = make_gpt2(small_gpt2(), DType::f32);
  const std::vector<std::pair<const char*, std::vector<std::int64_t>>> shapes{
      {"transformer.wte.weight", {130, 12}},
      {"transformer.wpe.weight", {16, 12}},
      {"transformer.h.1.ln_1.bias", {12}},
      {"transformer.h.1.attn.c_attn.weight", {12, 36}},
      {"transformer.h.1.attn.c_attn.bias", {36}},
      {"transformer.h.1.attn.c_proj.weight", {12, 12}},
      {"transformer.h.1.mlp.c_fc.weight", {12, 48}},
      {"transformer.h.1.mlp.c_fc.bias", {48}},
      {"transformer.h.1.mlp.c_proj.weight", {48, 12}},
      {"transformer.ln_f.weight", {12}}};
  for (const auto& [name, shape] : shapes) {
    const ParameterSpec& parameter = parameter_of(chain, name);
    ASSERT_EQ(parameter.logical.size(), 1u);
    EXPECT_EQ(parameter.logical[0].shape, shape) << name;
    EXPECT_EQ(parameter.columns, shape.back()) << name;
    EXPECT_EQ(parameter.decay, shape.size() == 2) << name;
  }
  EXPECT_DOUBLE_EQ(parameter_of(chain, "transformer.h.0.mlp.c_proj.weight").init_std, 0.02 / std::sqrt(4.0));
  EXPECT_EQ(parameter_of(chain, "transformer.h.0.mlp.c_proj.bias").init, Init::zeros);
}

TEST(Gpt2, SharesTheEmbeddingWithTheHeadWhenTied) {
  Gpt2Config c = small_gpt2();
  const Chain tied = make_gpt2(c, DType::f32);
  EXPECT_EQ(tied.units.back()->parameters().back(), 0);
  c.tie_word_embeddings = false;
  const Chain untied = make_gpt2(c, DType::f32);
  EXPECT_EQ(untied.num_parameters(), tied.num_parameters() + 130 * 12);
  EXPECT_EQ(untied.parameters.back().logical[0].name, "lm_head.weight");
}

TEST(Gpt2, RefusesImpossibleValues) {
  const std::vector<std::pair<const char*, std::function<void(Gpt2Config&)>>> wrong{
      {"vocabulary", [](Gpt2Config& c) { c.vocabulary = 0; }},
      {"hidden_size", [](Gpt2Config& c) { c.hidden_size = std::int64_t{1} << 40; }},
      {"intermediate_size", [](Gpt2Config& c) { c.intermediate_size = -1; }},
      {"num_layers", [](Gpt2Config& c) { c.num_layers = 0; }},
      {"num_heads", [](Gpt2Config& c) { c.num_heads = 5; }},
      {"max_positions", [](Gpt2Config& c) { c.max_positions = 0; }},
      {"layer_norm_eps", [](Gpt2Config& c) { c.layer_norm_eps = 0; }},
      {"init_std", [](Gpt2Config& c) { c.init_std = std::nan(""); }},
      {"embedding_dropout", [](Gpt2Config& c) { c.embedding_dropout = 1; }},
      {"attention_dropout", [](Gpt2Config& c) { c.attention_dropout = -0.1; }},
      {"residual_dropout", [](Gpt2Config& c) { c.residual_dropout = std::nan(""); }},
      {"loss_chunk_tokens", [](Gpt2Config& c) { c.loss_chunk_tokens = 0; }},
  };
  for (const auto& [name, change] : wrong) {
    Gpt2Config c = small_gpt2();
    change(c);
    const std::string text = testing::expect_error(1201, [&] { make_gpt2(c, DType::f32); });
    EXPECT_NE(text.find(std::string("model.") + name), std::string::npos) << text;
  }
  testing::expect_error(1201, [] { make_gpt2(small_gpt2(), DType::i32); });
}

}  // namespace
}  // namespace trireme
