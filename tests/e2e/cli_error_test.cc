#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

class CliErrorTest : public CliTest {};

std::string TinyWith(const std::string& field, const std::string& value) {
  std::string text = kTinyConfig;
  const size_t at = text.find("\"" + field + "\"");
  if (at == std::string::npos) return text.insert(1, "\"" + field + "\": " + value + ", ");
  const size_t end = text.find_first_of(",}", at);
  return text.replace(at, end - at, "\"" + field + "\": " + value);
}

TEST_F(CliErrorTest, MissingOrUnreadableModelFiles) {
  ExpectError(Predict({"--model", Path("gone.json")}), 3, {"gone.json: no such file"});
  ExpectError(Predict({"--model", Write("note.txt", "hi")}), 3, {"note.txt", "suffix"});
  ExpectError(Predict({"--model", "llama-2-7bb"}), 3, {"llama-2-7bb", "did you mean llama-2-7b?"});
  ExpectError({"inspect", Path("gone.json")}, 3, {"gone.json: no such file"});
}

TEST_F(CliErrorTest, ModelFilesThatAreNoConfigs) {
  ExpectError(PredictModel(std::string(kTinyConfig).substr(0, 60)), 3, {"m.json: not JSON: line"});
  ExpectError(PredictModel("hello"), 3, {"m.json: not JSON: line 1"});
  ExpectError(PredictModel(""), 3, {"m.json: not JSON"});
  ExpectError(PredictModel("{}"), 3, {"m.json: found neither \"model_type\""});
}

TEST_F(CliErrorTest, ModelTypesThatAreUnknown) {
  ExpectError(PredictModel(TinyWith("model_type", "\"lamma\"")), 3,
              {"m.json: /model_type: found \"lamma\"", "nearest: llama"});
}

TEST_F(CliErrorTest, ModelSizesThatAreImpossible) {
  for (const std::string value : {"-32", "32.5", "0", "99999999999", "\"32\""}) {
    ExpectError(PredictModel(TinyWith("hidden_size", value)), 3,
                {"m.json: /hidden_size: found " + value, "expected an integer from 1 to"});
  }
  ExpectError(PredictModel(TinyWith("num_attention_heads", "5")), 3,
              {"m.json: /hidden_size: found 32", "num_attention_heads = 5"});
  ExpectError(PredictModel(TinyWith("num_key_value_heads", "3")), 3,
              {"m.json: /num_key_value_heads: found 3", "num_attention_heads = 4"});
  ExpectError(PredictModel(TinyWith("vocab_size", "null")), 3,
              {"m.json: /vocab_size: found nothing"});
}

TEST_F(CliErrorTest, CountsThatAreNone) {
  for (const std::string value : {"0", "-8", "1.5", "eight", "", "99999999999999999999"}) {
    ExpectError(Predict({"--world", value}), 2, {"--world", "expected an integer from 1 to"});
  }
  ExpectError(Predict({"--seq", "0"}), 2, {"--seq"});
  ExpectError(Predict({"--micro-batch", "0"}), 2, {"--micro-batch"});
  ExpectError(Predict({"--micro-batch", "2000000", "--seq", "2000000"}), 2,
              {"--seq, --micro-batch"});
}

TEST_F(CliErrorTest, FlagValuesThatAreUnknownListTheAllowedOnes) {
  ExpectError(
      Predict({"--attention", "flsh"}), 2,
      {"--attention: found \"flsh\"", "auto, flash, efficient, math", "did you mean flash?"});
  for (const std::string flag : {"--optimizer", "--optimizer-impl", "--param-dtype", "--loss",
                                 "--reduce-dtype", "--original-dtype", "--kernel-profile"}) {
    ExpectError(Predict({flag, "zzz"}), 2, {flag + ": found \"zzz\"", "expected one of"});
  }
  for (const std::string flag : {"--reshard-after-forward", "--root-reshard-after-forward"}) {
    for (const std::string value : {"zzz", "0", "-2", "1.5", ""}) {
      ExpectError(Predict({flag, value}), 2, {flag + ": found \"" + value + "\""});
    }
  }
  ExpectError(Predict({"--torch", "new"}), 2, {"torch", "new"});
  for (const std::string flag : {"--learning-rate", "--weight-decay", "--momentum"}) {
    for (const std::string value : {"-1", "nan", "inf", "1e999", "fast", "0.1x", ""}) {
      ExpectError(Predict({flag, value}), 2, {flag});
    }
  }
  ExpectError(Predict({"--momentum", "0.9"}), 2,
              {"momentum: found 0.9, expected none for optimizer adamw"});
}

TEST_F(CliErrorTest, WrapPoliciesThatMakeNoSense) {
  ExpectError(Predict({"--wrap", "class:LlamaLayer"}), 2,
              {"wrap", "LlamaLayer", "LlamaDecoderLayer"});
  ExpectError(Predict({"--wrap", "blok"}), 2, {"wrap", "blok", "block"});
  ExpectError(Predict({"--wrap", "every:0"}), 2, {"wrap", "every:0"});
}

TEST_F(CliErrorTest, ClustersThatAreUnknownOrTooSmall) {
  ExpectError(Predict({"--cluster", "dgx-a100-80"}), 3, {"dgx-a100-80", "dgx-a100-80g"});
  ExpectError(Predict({"--cluster", Path("gone.textproto")}), 3, {"gone.textproto"});
  ExpectError(Predict({"--cluster", Write("bad.textproto", "gpu { nme: 'x' }")}), 3,
              {"bad.textproto:1:", "nme"});
}

TEST_F(CliErrorTest, CappedClustersSmallerThanTheWorld) {
  std::ifstream file(FORESHARD_SOURCE_DIR "/sim/catalogue/dgx-a100-80g.textproto");
  const std::string node{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string one_node = Write("one.textproto", node + "\nnodes: 1\n");
  ExpectError(Predict({"--cluster", one_node, "--world", "9"}), 2, {"dgx-a100-80g", "8", "9"});
  EXPECT_EQ(RunForeshard(Predict({"--cluster", one_node, "--world", "8"})).exit_code, 0);
}

TEST_F(CliErrorTest, CommandLinesThatAreIncomplete) {
  ExpectError({}, 2, {"no command", "predict"});
  ExpectError({"predcit"}, 2, {"\"predcit\"", "did you mean predict?"});
  ExpectError({"predict"}, 2, {"--model is required"});
  ExpectError(Predict({"--wrld", "8"}), 2, {"\"--wrld\"", "did you mean --world?"});
  ExpectError({"inspect", "llama-2-7b", "extra"}, 2, {"\"extra\""});
  ExpectError({"sim", "plan.pb"}, 2, {"--cluster is required"});
}

TEST_F(CliErrorTest, OutputsThatCannotBeWritten) {
  ExpectError(Plan({"-o", Path("no/such/folder.pb")}), 2, {"--output", "no/such"});
  ExpectError(Plan({"-o", Path("plan.xml")}), 2, {"--output", "plan.xml", "suffix"});
  ExpectError(Predict({"--json", Path("no/such/report.json")}), 2, {"--json", "no/such"});
}

TEST_F(CliErrorTest, PlanFilesThatAreMissingTruncatedOrInvalid) {
  ExpectError({"check", Path("gone.pb")}, 3, {"gone.pb"});
  ExpectError({"check", Write("bad.textproto", "header { format_version: }")}, 3,
              {"bad.textproto:1:"});
  ExpectError({"check", Write("empty.textproto", "")}, 4, {"empty.textproto: rule "});
  ASSERT_EQ(RunForeshard(Plan({"-o", Path("plan.pb")})).exit_code, 0);
  const std::string whole = Read("plan.pb");
  // One byte less cuts the last record; a cut between records would be a shorter, invalid plan.
  ExpectError({"check", Write("cut.pb", whole.substr(0, whole.size() - 1))}, 3, {"cut.pb"});
  ExpectError({"sim", Path("cut.pb"), "--cluster", "dgx-a100-80g"}, 3, {"cut.pb"});
}

TEST_F(CliErrorTest, ControlCharactersStayOnOneLine) {
  ExpectError({"inspect", "a\nb.json"}, 3, {"a\\x0ab.json"});
}

}  // namespace
}  // namespace foreshard
