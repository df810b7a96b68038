// What a Llama declares, and what it refuses. That it computes the right thing is shown in tests/parity.
#include "models/llama.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "support/expect_error.h"

namespace trireme {
namespace {

LlamaConfig small_llama() {
  LlamaConfig c;
  c.vocabulary = 130;
  c.hidden_size = 12;
  c.intermediate_size = 20;
  c.num_layers = 2;
  c.num_heads = 6;
  c.num_key_value_heads = 2;
  c.head_dim = 4;
  c.max_positions = 16;
  return c;
}

TEST(Llama, IsAChainOfEmbeddingBlocksAndHead) {
  const Chain chain = make_llama(small_llama(), DType::bf16);
  std::vector<std::string> names;
  for (const auto& unit : chain.units) names.push_back(unit->name());
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layers.0", "layers.1", "head"}));
  EXPECT_EQ(chain.units[0]->parameters(), std::vector<int>{0});
  EXPECT_EQ(chain.units[2]->parameters(), (std::vector<int>{7, 8, 9, 10, 11, 12}));
  const BoundarySpec hidden = chain.units[2]->output({3, 5});
  ASSERT_EQ(hidden.size(), 1u);
  EXPECT_EQ(hidden[0].dtype, DType::bf16);
  EXPECT_EQ(hidden[0].sizes, (std::vector<std::int64_t>{3, 5, 12}));
  EXPECT_TRUE(chain.units.back()->output({3, 5}).empty());
  EXPECT_EQ(chain.vocabulary, 130);
  EXPECT_EQ(chain.max_positions, 16);
}

TEST(Llama, SharesTheEmbeddingWithTheHeadWhenTied) {
  LlamaConfig c = small_llama();
  const Chain tied = make_llama(c, DType::f32);
  EXPECT_EQ(tied.units.back()->parameters(), (std::vector<int>{13, 0}));
  EXPECT_EQ(tied.parameters.size(), 14u);
  c.tie_word_embeddings = false;
  const Chain untied = make_llama(c, DType::f32);
  EXPECT_EQ(untied.units.back()->parameters(), (std::vector<int>{13, 14}));
  EXPECT_EQ(untied.num_parameters(), tied.num_parameters() + 130 * 12);
}

TEST(Llama, NamesItsTensorsAsHuggingFaceDoes) {
  LlamaConfig c = small_llama();
  c.tie_word_embeddings = false;
  const Chain chain = make_llama(c, DType::f32);
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> shapes;
  for (const ParameterSpec& parameter : chain.parameters) {
    for (const LogicalTensor& tensor : parameter.logical) {
      if (tensor.name.find("layers.0") != std::string::npos) continue;
      names.push_back(tensor.name);
      shapes.push_back(tensor.shape);
    }
  }
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "model.embed_tokens.weight", layer + "input_layernorm.weight", layer + "self_attn.q_proj.weight",
                layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight", layer + "self_attn.o_proj.weight",
                layer + "post_attention_layernorm.weight", layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
                layer + "mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"}));
  EXPECT_EQ(
      shapes,
      (std::vector<std::vector<std::int64_t>>{
          {130, 12}, {12}, {24, 12}, {8, 12}, {8, 12}, {12, 24}, {12}, {20, 12}, {20, 12}, {12, 20}, {12}, {130, 12}}));
}

// Boxes lie inside their storage matrix, do not overlap, and cover all of it but the vocabulary's padding.
TEST(Llama, LogicalTensorsTileTheStorage) {
  for (const ParameterSpec& parameter : make_llama(small_llama(), DType::f32).parameters) {
    std::vector<int> owners(parameter.numel());
    for (const LogicalTensor& tensor : parameter.logical) {
      std::int64_t numel = 1;
      for (const std::int64_t size : tensor.shape) numel *= size;
      EXPECT_EQ(numel, tensor.box.numel()) << tensor.name;
      for (std::int64_t row = tensor.box.row_begin; row < tensor.box.row_end; ++row) {
        for (std::int64_t c = tensor.box.column_begin; c < tensor.box.column_end; ++c) {
          ++owners.at(row * parameter.columns + c);
        }
      }
    }
    const std::int64_t covered = parameter.name == "embed" ? 130 * 12 : parameter.numel();
    for (std::int64_t i = 0; i < parameter.numel(); ++i) {
      ASSERT_EQ(owners[i], i < covered ? 1 : 0) << parameter.name << " element " << i;
    }
  }
}

TEST(Llama, PadsTheVocabularyAndKeepsNormsFromDecay) {
  const Chain chain = make_llama(small_llama(), DType::f32);
  EXPECT_EQ(chain.parameters[0].rows, 256);
  for (const ParameterSpec& parameter : chain.parameters) {
    const bool norm = parameter.rows == 1;
    EXPECT_EQ(parameter.decay, !norm) << parameter.name;
    EXPECT_EQ(parameter.init, norm ? Init::ones : Init::normal) << parameter.name;
    const bool residual = parameter.name.ends_with("attention_output") || parameter.name.ends_with("down");
    if (norm) continue;
    EXPECT_DOUBLE_EQ(parameter.init_std, residual ? 0.02 / std::sqrt(4.0) : 0.02) << parameter.name;
  }
}

TEST(Llama, SaysWhatItNeedsAndCosts) {
  const Chain chain = make_llama(small_llama(), DType::f32);
  const BatchShape one{1, 8}, two{2, 8};
  for (const auto& unit : chain.units) {
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const UnitCost cost = unit->describe(phase, one), more = unit->describe(phase, two);
      EXPECT_EQ(cost.workspace_bytes % 64, 0) << unit->name();
      EXPECT_EQ(cost.saved_bytes, unit->describe(Phase::forward, one).saved_bytes) << "both phases say the same";
      EXPECT_GE(more.saved_bytes, cost.saved_bytes);
      EXPECT_GE(more.bytes_moved, cost.bytes_moved);
      EXPECT_DOUBLE_EQ(more.flops, 2 * cost.flops);
    }
  }
  const UnitCost block = chain.units[1]->describe(Phase::forward, one);
  const double weights = 12 * 40 + 24 * 12 + 3 * 12 * 20;
  EXPECT_DOUBLE_EQ(block.flops, 2 * 8 * weights + 2 * 8 * 8 * 24);
  EXPECT_FALSE(chain.units[0]->describe(Phase::backward, one).reads_input);
  EXPECT_TRUE(chain.units[1]->describe(Phase::backward, one).reads_input);
}

TEST(Llama, RefusesImpossibleSizes) {
  const std::vector<std::pair<const char*, std::function<void(LlamaConfig&)>>> wrong{
      {"vocabulary", [](LlamaConfig& c) { c.vocabulary = 0; }},
      {"vocabulary", [](LlamaConfig& c) { c.vocabulary = std::int64_t{1} << 40; }},
      {"hidden_size", [](LlamaConfig& c) { c.hidden_size = -12; }},
      {"intermediate_size", [](LlamaConfig& c) { c.intermediate_size = 0; }},
      {"num_layers", [](LlamaConfig& c) { c.num_layers = 0; }},
      {"num_layers", [](LlamaConfig& c) { c.num_layers = 1 << 30; }},
      {"num_heads", [](LlamaConfig& c) { c.num_heads = 0; }},
      {"num_key_value_heads", [](LlamaConfig& c) { c.num_key_value_heads = 4; }},
      {"num_key_value_heads", [](LlamaConfig& c) { c.num_key_value_heads = 7; }},
      {"head_dim", [](LlamaConfig& c) { c.head_dim = 5; }},
      {"num_heads", [](LlamaConfig& c) { c.head_dim = 0, c.hidden_size = 13; }},
      {"max_positions", [](LlamaConfig& c) { c.max_positions = std::int64_t{1} << 50; }},
      {"rope_theta", [](LlamaConfig& c) { c.rope.theta = 0; }},
      {"rms_norm_eps", [](LlamaConfig& c) { c.rms_norm_eps = std::nan(""); }},
      {"init_std", [](LlamaConfig& c) { c.init_std = -1; }},
      {"loss_chunk_tokens", [](LlamaConfig& c) { c.loss_chunk_tokens = 0; }},
      {"embedding_scale", [](LlamaConfig& c) { c.embedding_scale = 0; }},
      {"attention_scale", [](LlamaConfig& c) { c.attention_scale = -1; }},
      {"attention_soft_cap", [](LlamaConfig& c) { c.attention_soft_cap = std::nan(""); }},
      {"logit_soft_cap", [](LlamaConfig& c) { c.logit_soft_cap = -30; }},
      {"attention_dropout", [](LlamaConfig& c) { c.attention_dropout = 1; }},
      {"windows", [](LlamaConfig& c) { c.windows = {4}; }},
      {"windows",
       [](LlamaConfig& c) {
         c.windows = {4, -1};
       }},
  };
  for (const auto& [name, change] : wrong) {
    LlamaConfig c = small_llama();
    change(c);
    const std::string text = testing::expect_error(1201, [&] { make_llama(c, DType::f32); });
    EXPECT_NE(text.find(std::string("model.") + name), std::string::npos) << text;
  }
  testing::expect_error(1201, [] { make_llama(small_llama(), DType::i32); });
}

TEST(Llama, RefusesImpossibleRopeScaling) {
  using Kind = RopeScaling::Kind;
  const auto refuses = [](const char* what, const RopeScaling& scaling) {
    LlamaConfig c = small_llama();
    c.rope.scaling = scaling;
    const std::string text = testing::expect_error(1201, [&] { make_llama(c, DType::f32); });
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  refuses("factor", {.kind = Kind::linear, .factor = 0});
  refuses("original_max_position_embeddings", {.kind = Kind::yarn, .factor = 2});
  refuses("running text beyond 8", {.kind = Kind::dynamic, .factor = 2, .original_max_positions = 8});
  refuses("high_freq_factor", {.kind = Kind::llama3,
                               .factor = 2,
                               .original_max_positions = 8,
                               .low_frequency_factor = 4,
                               .high_frequency_factor = 4});
  refuses("beta_slow", {.kind = Kind::yarn, .factor = 2, .original_max_positions = 8, .beta_slow = -1});
  refuses("short_factor", {.kind = Kind::longrope, .original_max_positions = 8, .short_factors = {1}});
  refuses("long_factor",
          {.kind = Kind::longrope, .original_max_positions = 8, .short_factors = {1, 2}, .long_factors = {1, 0}});
}

// Gemma's norms multiply by 1 + weight: theirs begin at 0, and biases too.
TEST(Llama, DeclaresWhatTheFamiliesAdd) {
  LlamaConfig c = small_llama();
  c.qkv_bias = c.query_key_norms = c.post_norms = c.one_plus_norm_weights = true;
  const Chain chain = make_llama(c, DType::f32);
  std::vector<std::string> names;
  for (const int p : chain.units[1]->parameters()) {
    names.push_back(chain.parameters[p].name);
    const bool is_vector = chain.parameters[p].rows == 1;
    EXPECT_EQ(chain.parameters[p].init, is_vector ? Init::zeros : Init::normal) << names.back();
    EXPECT_EQ(chain.parameters[p].decay, !is_vector) << names.back();
  }
  const std::vector<std::string> expected{"input_norm",
                                          "qkv",
                                          "qkv_bias",
                                          "query_norm",
                                          "key_norm",
                                          "attention_output",
                                          "attention_branch_norm",
                                          "post_attention_norm",
                                          "gate_up",
                                          "down",
                                          "mlp_branch_norm"};
  ASSERT_EQ(names.size(), expected.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], "layers.0." + expected[i]);
  const ParameterSpec& bias = chain.parameters[chain.units[1]->parameters()[2]];
  EXPECT_EQ(bias.logical[1].name, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(bias.logical[1].box, (Box{0, 1, 24, 32}));
}

// One micro-batch of 2 x 3 tokens whose side inputs a test may spoil.
struct Micro {
  Chain chain = make_llama(small_llama(), DType::f32);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(6, 1), labels = ids, starts = std::vector<std::int32_t>(6);
  std::vector<std::int32_t> positions{0, 1, 2, 0, 1, 2};
  std::vector<float> weights = std::vector<float>(256 * 12, 0.1f), norm = std::vector<float>(12, 1.0f);
  std::vector<float> hidden = std::vector<float>(6 * 12, 0.5f);
  std::vector<std::byte> workspace = std::vector<std::byte>(1 << 20);

  Batch batch() const { return {{2, 3}, ids.data(), labels.data(), positions.data(), starts.data()}; }
  void embed() {
    const Tensor w[] = {Tensor(weights.data(), DType::f32, {256, 12})};
    const Tensor out[] = {Tensor(hidden.data(), DType::f32, {2, 3, 12})};
    for (const auto& unit : chain.units) unit->check(batch());
    chain.units[0]->forward({batch(), w, {}, out, nullptr, workspace.data()});
  }
  LossResult loss() {
    const Tensor w[] = {Tensor(norm.data(), DType::f32, {1, 12}), Tensor(weights.data(), DType::f32, {256, 12})};
    const Tensor in[] = {Tensor(hidden.data(), DType::f32, {2, 3, 12})};
    return loss_of(*chain.units.back(), {batch(), w, in, {}, {}, 1.0, workspace.data()});
  }
};

TEST(Llama, RefusesInputsThatWouldIndexOutsideItsBuffers) {
  const auto spoiled = [](std::vector<std::int32_t> Micro::*which, std::int32_t value) {
    Micro micro;
    (micro.*which)[4] = value;
    return micro;
  };
  const auto refuses = [](int code, Micro micro, const char* value) {
    const std::string text = testing::expect_error(code, [&] {
      micro.embed();
      micro.loss();
    });
    EXPECT_NE(text.find("batch row 1, position 1"), std::string::npos) << text;
    EXPECT_NE(text.find(value), std::string::npos) << text;
  };
  refuses(1202, spoiled(&Micro::ids, 130), "130");
  refuses(1202, spoiled(&Micro::ids, -1), "-1");
  refuses(1203, spoiled(&Micro::positions, 16), "16");
  refuses(1203, spoiled(&Micro::positions, -2), "-2");
  refuses(1204, spoiled(&Micro::starts, 2), "2");
  refuses(1204, spoiled(&Micro::starts, -1), "-1");
  refuses(1205, spoiled(&Micro::labels, 130), "130");
}

TEST(Llama, ALabelBelowZeroCountsNothing) {
  Micro micro;
  const LossResult all = micro.loss();
  EXPECT_EQ(all.weight, 6);
  EXPECT_NEAR(all.sum / 6, std::log(130.0), 1e-5) << "equal logits over the logical vocabulary";
  micro.labels = {-1, 1, -1, -7, -1, -1};
  EXPECT_EQ(micro.loss().weight, 1);
  micro.labels.assign(6, -1);
  EXPECT_EQ(micro.loss().weight, 0);
  EXPECT_EQ(micro.loss().sum, 0.0);
}

}  // namespace
}  // namespace trireme
