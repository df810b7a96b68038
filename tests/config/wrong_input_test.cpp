// Each wrong configuration gives one clear error: the code, the place and the way out.
#include "helpers.h"

namespace trireme::config {
namespace {

struct WrongInput {
  std::string name;
  std::string yaml;  // appended to kSmall (8 lines) where it starts with a "+"
  Overrides overrides;
  int code;
  std::string place;
  std::string fragment;  // of message or remedy
};

void PrintTo(const WrongInput& wrong, std::ostream* out) {
  *out << wrong.name;
}

class WrongInputs : public ::testing::TestWithParam<WrongInput> {};

TEST_P(WrongInputs, IsRefusedWithCodePlaceAndRemedy) {
  const WrongInput& wrong = GetParam();
  const std::string yaml = wrong.yaml.starts_with('+') ? kSmall + wrong.yaml.substr(1) : wrong.yaml;
  const auto error = error_of(yaml, wrong.overrides);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), wrong.code) << error->what();
  EXPECT_EQ(error->exit_code(), 2);
  EXPECT_EQ(error->place(), wrong.place) << error->what();
  EXPECT_NE((error->message() + "\n" + error->remedy()).find(wrong.fragment), std::string::npos) << error->what();
  EXPECT_FALSE(error->remedy().empty()) << error->what();
  EXPECT_EQ(error->message().find('\n'), std::string::npos) << error->what();
}

std::string on_command_line(const std::string& text) {
  return "command line: " + text;
}

// A case on the command line of kSmall, with the place that it must have.
WrongInput override_case(const std::string& name, const std::string& text, int code, const std::string& fragment) {
  return {name, kSmall, {text}, code, on_command_line(text), fragment};
}

const std::vector<WrongInput> kKeys = {
    {"MisspeltKey", "+  learning_rte: 1e-3\n", {}, 2101, "run.yaml:9:3", "training.learning_rate"},
    {"MisspeltBlock", "modle:\n  hidden_size: 4\n", {}, 2101, "run.yaml:1:1", "did you mean model?"},
    {"UnknownEmptyKey", "+data2:\n", {}, 2101, "run.yaml:9:1", "blocks: model, data, training"},
    {"KnownKeyInWrongBlock", "model:\n  learning_rate: 1\n", {}, 2101, "run.yaml:2:3", "belongs in the block training"},
    {"KeyOfTheModelAtTop", "hidden_size: 1\n", {}, 2101, "run.yaml:1:1", "write model.hidden_size"},
    {"MisspeltKeyAtTop", "learning_rte: 1\n", {}, 2101, "run.yaml:1:1", "training.learning_rate"},
    {"TopKeyInBlock", "+  name: x\n", {}, 2101, "run.yaml:9:3", "write name: it stands at the top"},
    {"SynonymInWrongBlock", "model:\n  max_grad_norm: 1\n", {}, 2101, "run.yaml:2:3", "training.gradient_clipping"},
    {"FarFromAllKeys", "+  qqqqqqq: 1\n", {}, 2101, "run.yaml:9:3", "keys in training: max_steps"},
    {"BlockInBlock", "+  training:\n    seed: 1\n", {}, 2101, "run.yaml:9:3", "training.training"},
    {"DuplicateKey", "+  max_steps: 11\n", {}, 2103, "run.yaml:9:3", "first in line 8"},
    {"DuplicateBlock", "+data:\n  path: x\n", {}, 2103, "run.yaml:9:1", "first in line 5"},
    {"DuplicateBySynonym", "+  lr: 1\n  learning_rate: 2\n", {}, 2103, "run.yaml:10:3", "first at run.yaml:9:3"},
    {"DuplicateByDots", "+training.max_steps: 10\n", {}, 2103, "run.yaml:9:1", "first at run.yaml:8:3"},
    {"MissingKeys", "training: {max_steps: 1}\n", {}, 2106, "run.yaml", "model.hidden_size, model.num_layers"},
    {"EmptyFile", "# nothing\n", {}, 2106, "run.yaml", "data.path"},
};

const std::vector<WrongInput> kValues = {
    {"TextForInteger", "+  warmup_steps: many\n", {}, 2102, "run.yaml:9:17", "it takes an integer from 0"},
    {"FractionForInteger", "+  warmup_steps: 2.5\n", {}, 2102, "run.yaml:9:17", "is 2.5"},
    {"UnderscoresInInteger", "+  warmup_steps: 1_000\n", {}, 2102, "run.yaml:9:17", "underscores"},
    {"LeadingZero", "+  warmup_steps: 010\n", {}, 2102, "run.yaml:9:17", "without the leading zero"},
    {"QuotedTruth", "+  reduce_each_micro_batch: \"true\"\n", {}, 2102, "run.yaml:9:28", "without quotes"},
    {"ListForNumber", "+  learning_rate: [1, 2]\n", {}, 2102, "run.yaml:9:18", "is a list"},
    {"BlockForNumber", "+  learning_rate:\n    x: 1\n", {}, 2102, "run.yaml:10:5", "is a block of keys"},
    {"NumberForBlock", "data: 5\n", {}, 2102, "run.yaml:1:1", "a block of keys, not a value"},
    {"EmptyValue", "+  learning_rate:\n", {}, 2102, "run.yaml:9:3", "leave the key away"},
    {"EmptyPath", "data:\n  path: ''\n", {}, 2102, "run.yaml:2:9", "it needs a path"},
    {"HomePath", "data:\n  path: ~/tokens\n", {}, 2102, "run.yaml:2:9", "~ is not expanded"},
    {"NulInPath", "data:\n  path: \"a\\0b\"\n", {}, 2102, "run.yaml:2:9", "NUL"},
    {"NumberForBool", "+  reduce_each_micro_batch: 1\n", {}, 2102, "run.yaml:9:28", "true or false"},
    {"UnknownChoice", "+  lr_scheduler: cosin\n", {}, 2102, "run.yaml:9:17", "did you mean cosine?"},
    {"NumberForSynonymOfBool", "+  bf16: 1\n", {}, 2102, "run.yaml:9:9", "training.mixed_precision"},
    {"ZeroWhereOneIsLeast", "+  micro_batch_size: 0\n", {}, 2105, "run.yaml:9:21", "from 1"},
    {"NegativeRate", "+  learning_rate: -1e-3\n", {}, 2105, "run.yaml:9:18", "a number from 0"},
    {"BetaOfOne", "+  adam_beta1: 1\n", {}, 2105, "run.yaml:9:15", "below 1"},
    {"EpsilonOfZero", "+  adam_eps: 0\n", {}, 2105, "run.yaml:9:13", "above 0"},
    {"Infinity", "+  learning_rate: .inf\n", {}, 2105, "run.yaml:9:18", "out of range"},
    {"NotANumber", "+  learning_rate: .NaN\n", {}, 2105, "run.yaml:9:18", "out of range"},
    {"InfinityForInteger", "+  seed: .inf\n", {}, 2105, "run.yaml:9:9", "out of range"},
    {"IntegerOver64Bits", "+  seed: 9223372036854775808\n", {}, 2105, "run.yaml:9:9", "out of range"},
    {"ExponentOver64Bits", "+  seed: 1e19\n", {}, 2105, "run.yaml:9:9", "out of range"},
    {"NumberOverDouble", "+  learning_rate: 1e400\n", {}, 2105, "run.yaml:9:18", "out of range"},
};

const std::vector<WrongInput> kTogether = {
    {"MicroBatchDoesNotDivide",
     "+  global_batch_size: 32\n  micro_batch_size: 3\n",
     {},
     2104,
     "run.yaml:10:3",
     "32 = micro_batch_size x M needs micro_batch_size 1, 2, 4, 8, 16 or 32"},
    {"GlobalBatchToBlame",
     "+  global_batch_size: 0x11\n",
     {"training.micro_batch_size=2"},
     2104,
     on_command_line("training.micro_batch_size=2"),
     "global_batch_size 17"},
    override_case("KeyValueHeadsDoNotDivide", "model.num_key_value_heads=3", 2104, "num_key_value_heads 1, 2 or 4"),
    override_case("HeadsDoNotDivide", "model.num_heads=3", 2104, "or give head_dim"),
    override_case("Gpt2KeyValueHeads", "model={family: gpt2, num_key_value_heads: 2}", 2104, "as many as its 4 heads"),
    override_case("Gpt2HeadSize", "model={family: gpt2, head_dim: 32}", 2104, "hidden_size / num_heads"),
    override_case("Gpt2RopeTheta", "model={family: gpt2, rope_theta: 500}", 2104, "learns its positions"),
    override_case("LlamaResidualDropout", "model.hidden_dropout=0.1", 2104, "family: gpt2"),
    override_case("DropoutOfEverything", "model.attention_dropout=1", 2105, "0 below 1"),
    override_case("OddHead", "model.head_dim=15", 2104, "which is odd"),
    override_case("OddHeadByDivision", "model.num_heads=64", 2104, "model.head_dim is 1"),
    override_case("PositionsTooFew", "model.max_position_embeddings=1000", 2104, "sequence_length is 1024"),
    override_case("WholeMatrices", "training.optimizer=muon", 2102, "it works on whole matrices"),
    override_case("WholeMatricesByTheOtherName", "training.optim=Adafactor", 2102, "works on whole matrices"),
    override_case("NormsOfWholeParameters", "training.optimizer=LAMB", 2102, "norm of each whole parameter"),
    override_case("MisspeltOptimizer", "training.optimizer=adamww", 2102, "did you mean adamw?"),
    override_case("UnknownOptimizer", "training.optimizer=adamw_8bit", 2102, "one of adamw, adam, sgd, adagrad, lion"),
    override_case("MomentumOfOne", "training.momentum=1", 2105, "0 below 1"),
    override_case("NegativeSums", "training.initial_accumulator_value=-1", 2105, "from 0"),
    override_case("NesterovWithoutMomentum", "training.nesterov=true", 2104, "set training.momentum"),
    override_case("CycleWithoutItsMinimum", "training.lr_scheduler=OneCycle", 2104, "cycle_min_learning_rate=1e-5"),
    override_case("CycleOfNoSteps", "training.cycle_first_step_size=0", 2105, "from 1"),
    override_case("RatioAboveOne", "training.cos_min_ratio=1.5", 2105, "from 0 to 1"),
    override_case("UnknownWarmupType", "training.warmup_type=cubic", 2102, "one of log, linear"),
    override_case("UnknownLaw", "training.lr_scheduler=warmup_cosin", 2102, "did you mean warmup_cosine?"),
    override_case("RangeTestOfNoSteps", "training.lr_range_test_step_size=0", 2105, "from 1"),
    override_case("CyclingMomentum", "training.cycle_momentum=true", 2190, "set it to false"),
    override_case("LeastMomentum", "training.cycle_min_mom=0.8", 2190, "remove the key"),
    override_case("MinimumAbovePeak", "training.min_learning_rate=1", 2104, "above learning_rate"),
    override_case("NameWithSlash", "name=a/b", 2104, "letters, digits"),
    {"NoEnd", kSmall, {"training.max_steps="}, 2106, "run.yaml", "training.num_epochs=1"},
};

const std::vector<WrongInput> kNotYet = {
    override_case("TensorParallel", "distributed.tp=2", 2190, "set it to 1"),
    override_case("PipelineParallel", "distributed.pp=4", 2190, "not yet"),
    override_case("ContextParallel", "distributed.context_parallel_size=2", 2190, "distributed.cp"),
    override_case("Fp8", "training.mixed_precision=fp8", 2190, "one of no, bf16, fp16"),
    override_case("AsyncSave", "checkpoint.async=on", 2190, "not yet"),
    override_case("OtherFamily", "model.family=Qwen2", 2190, "not yet"),
    override_case("Receivers", "monitor.report_to=[none, wandb]", 2190, "not yet"),
    override_case("UnknownReceiver", "monitor.report_to=[tensorbord]", 2102, "did you mean tensorboard?"),
    override_case("BlockOfReceivers", "monitor.report_to={tensorboard: true}", 2102, "a list of tensorboard"),
    override_case("ListOfListsOfReceivers", "monitor.report_to=[[tensorboard]]", 2102, "a list of tensorboard"),
    override_case("RefusingLongDocuments", "data.truncation=false", 2190, "not yet"),
    override_case("PaddingInFront", "data.padding_side=left", 2190, "not yet"),
    override_case("NoSplit", "data.split=", 2102, "it takes a text"),
    override_case("NoSamples", "data.max_samples=0", 2105, "from 1"),
    override_case("Profile", "monitor.profile={start: 3}", 2190, "not yet"),
    override_case("OffloadToDisk", "distributed.offload_optimizer=nvme", 2190, "not yet"),
    override_case("OffloadOfWholeParameters", "distributed.offload_param=cpu", 2104, "does not shard parameters"),
    override_case("CpuCheckpointingAlone", "training.cpu_checkpointing=true", 2104, "gradient_checkpointing=full"),
    override_case("Elastic", "distributed.elastic=true", 2190, "not yet"),
    override_case("WrongTypeOfLaterKey", "distributed.tp=two", 2102, "distributed.tp is two"),
};

const std::vector<WrongInput> kCommandLine = {
    override_case("NoEqualsSign", "training.max_steps", 2109, "write training.max_steps=VALUE"),
    override_case("NoKey", "=5", 2109, "no key"),
    override_case("WrongValue", "training.max_steps=abc", 2102, "training.max_steps is abc"),
    override_case("MisspeltOnCommandLine", "training.max_stps=5", 2101, "training.max_steps"),
    override_case("MisspeltBlockOnCommandLine", "trianing.max_steps=5", 2101, "training.max_steps"),
    override_case("MissingDot", "trainingmax_steps=5", 2101, "training.max_steps"),
    override_case("OpenList", "training.max_steps=[1", 2108, "bracket left open"),
    override_case("WordForBlock", "training=fast", 2102, "block of keys"),
    {"TwiceOnCommandLine",
     kSmall,
     {"training.seed=1", "training.seed=1"},
     2103,
     on_command_line("training.seed=1"),
     "given twice"},
};

const std::vector<WrongInput> kText = {
    {"NotYaml", "a: [1\n", {}, 2107, "run.yaml:2:1", "not valid YAML"},
    {"ColonInValue", "name: a: b\n", {}, 2107, "run.yaml:1:8", "in quotes"},
    {"TabIndentation", "training:\n\tmax_steps: 1\n", {}, 2108, "run.yaml:2:1", "a tab"},
    {"TabAfterSpaces", "training:\n  \tmax_steps: 1\n", {}, 2108, "run.yaml:2:3", "a tab"},
    {"Nul", std::string("name: a\0b\n", 10), {}, 2108, "run.yaml:1:8", "NUL"},
    {"InvalidUtf8", "name: \xC3(\n", {}, 2108, "run.yaml:1:7", "UTF-8"},
    {"OverlongUtf8", "name: a\n# \xC0\xAF\n", {}, 2108, "run.yaml:2:3", "UTF-8"},
    {"SurrogateInUtf8", "# \xC3\xA9 \xED\xA0\x80\n", {}, 2108, "run.yaml:1:5", "UTF-8"},
    {"Utf16", std::string("\xFF\xFEn\0", 4), {}, 2108, "run.yaml:1:1", "UTF-8"},
    {"ControlCharacter", "name: a\x1B[0m\n", {}, 2108, "run.yaml:1:8", "\\x1b"},
    {"Alias", "name: &n x\noutput_dir: *n\n", {}, 2108, "run.yaml:1:7", "anchor"},
    {"MergeKey", "training:\n  <<: {seed: 1}\n", {}, 2108, "run.yaml:2:3", "merge key"},
    {"Tag", "training:\n  seed: !!int 5\n", {}, 2108, "run.yaml:2:9", "tag"},
    {"TwoDocuments", kSmall + "---\nname: b\n", {}, 2108, "run.yaml:9:1", "second document"},
    {"ListAtRoot", "- a\n- b\n", {}, 2108, "run.yaml:1:1", "is a list"},
    {"WordAtRoot", "hello\n", {}, 2108, "run.yaml:1:1", "is hello"},
    {"ListAsKey", "? [a, b]\n: 1\n", {}, 2108, "run.yaml:1:3", "as a key"},
    {"EmptyKey", "~: 1\n", {}, 2108, "run.yaml:1:1", "empty key"},
};

std::string test_name(const ::testing::TestParamInfo<WrongInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Keys, WrongInputs, ::testing::ValuesIn(kKeys), test_name);
INSTANTIATE_TEST_SUITE_P(Values, WrongInputs, ::testing::ValuesIn(kValues), test_name);
INSTANTIATE_TEST_SUITE_P(Together, WrongInputs, ::testing::ValuesIn(kTogether), test_name);
INSTANTIATE_TEST_SUITE_P(NotYet, WrongInputs, ::testing::ValuesIn(kNotYet), test_name);
INSTANTIATE_TEST_SUITE_P(CommandLine, WrongInputs, ::testing::ValuesIn(kCommandLine), test_name);
INSTANTIATE_TEST_SUITE_P(Text, WrongInputs, ::testing::ValuesIn(kText), test_name);

}  // namespace
}  // namespace trireme::config
