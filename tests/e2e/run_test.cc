// `foreshard run` as its user meets it: what it prints and writes, and what it refuses.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "proto/base/safetensors.h"
#include "proto/io.h"
#include "proto/plan.pb.h"
#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Source(const std::string& path) {
  return std::string(FORESHARD_SOURCE_DIR) + "/" + path;
}

class RunTest : public CliTest {
 protected:
  // A plan of the tiny Llama of bytes, as the README has it.
  std::string MakePlan(const Args& more = {}) const {
    const std::string config = Source("tests/data/models/byte-llama.json");
    const Args args = {"plan",  "--model", config,          "--world", "2",
                       "--seq", "64",      "--micro-batch", "4",       "--learning-rate",
                       "0.003", "-o",      Path("plan.pb")};
    const ProcessResult result = RunForeshard(Merge(args, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Path("plan.pb");
  }
  std::string MakeText() const { return Source("tests/data/text/shards.txt"); }

  static json Run(const Args& more) {
    Args args = {"run"};
    args.insert(args.end(), more.begin(), more.end());
    args.insert(args.end(), {"--json", "-"});
    const ProcessResult result = RunForeshard(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  static double Loss(const json& report, size_t step) {
    return report.at("training").at(step).at("losses").at(0).get<double>();
  }
};

TEST_F(RunTest, TheLossOfATinyTextFallsAsTheReadmeShows) {
  const json report = Run({MakePlan(), "--steps", "60", "--data", MakeText()});
  ASSERT_EQ(report.at("training").size(), 60u);
  // Another BLAS core may round products differently, so the last digits are not compared.
  EXPECT_NEAR(Loss(report, 0), 5.556, 0.01);
  EXPECT_LT(Loss(report, 59), 2.4);
  std::ifstream file(Source("README.md"));
  const std::string readme{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const size_t step : {size_t{0}, size_t{1}, size_t{4}, size_t{59}}) {
    const std::string begin = fmt::format("\n  step {}  loss ", step);
    const size_t at = readme.find(begin);
    ASSERT_NE(at, std::string::npos) << begin;
    const double shown = std::strtod(readme.c_str() + at + begin.size(), nullptr);
    EXPECT_NEAR(Loss(report, step), shown, step == 59 ? 0.05 : 0.005) << step;
  }
}

TEST_F(RunTest, StepsGoToStderrAndTheReportToStdout) {
  const ProcessResult result = RunForeshard({"run", MakePlan(), "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, testing::ContainsRegex("step 0  loss [0-9.]+  gradient norm [0-9.]+"));
  EXPECT_THAT(result.err, HasSubstr("step 1"));
  for (const char* part : {"byte-llama on 2 x", "measured", "cpu backend", "OpenBLAS", "Training",
                           "What the peak is made of", "Step time", "Collectives of one step"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST_F(RunTest, TheJsonSaysWhatRanAndWhere) {
  const json report = Run({MakePlan(), "--seed", "7", "--no-poison"});
  EXPECT_EQ(report.at("source"), "measured");
  const json& environment = report.at("environment");
  EXPECT_EQ(environment.at("backend"), "cpu");
  EXPECT_EQ(environment.at("seed"), 7);
  EXPECT_EQ(environment.value("poisoned", false), false);
  for (const char* key : {"device", "compiler", "build", "libraries", "operating_system"}) {
    EXPECT_FALSE(environment.at(key).empty()) << key;
  }
  EXPECT_FALSE(report.contains("timeline"));
  EXPECT_GT(report.at("timing").at("step_ps"), 0);
}

// The seed decides everything, and training goes on from saved weights where it stopped.
TEST_F(RunTest, TheSameSeedGivesTheSameLosses) {
  const std::string plan = MakePlan();
  const json a = Run({plan, "--seed", "3"});
  EXPECT_EQ(a.at("training"), Run({plan, "--seed", "3"}).at("training"));
  EXPECT_NE(a.at("training"), Run({plan, "--seed", "4"}).at("training"));
}

TEST_F(RunTest, SavedWeightsAndGradientsAreWholeTensors) {
  const std::string plan = MakePlan({"--world", "3"});
  Run({plan, "--save-weights", Path("w.safetensors"), "--save-gradients", Path("g.safetensors")});
  pb::Plan read;
  ASSERT_TRUE(ReadMessage(plan, read).ok());
  for (const char* name : {"w.safetensors", "g.safetensors"}) {
    const auto file = Safetensors::Open(Path(name));
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_EQ(file->tensors().size(), static_cast<size_t>(read.parameters_size()));
    for (const pb::Parameter& p : read.parameters()) {
      ASSERT_NE(file->Find(p.path()), nullptr) << p.path();
      EXPECT_EQ(file->Find(p.path())->shape,
                std::vector<int64_t>(p.shape().begin(), p.shape().end()));
    }
  }
  const json again = Run({plan, "--weights", Path("w.safetensors"), "--data", MakeText()});
  EXPECT_NE(Loss(again, 0), Loss(Run({plan, "--data", MakeText()}), 0));
}

// ---- what it refuses, in one line; nothing is written

TEST_F(RunTest, FilesThatAreNoPlan) {
  const Args report = {"-o", Path("r.pb")};
  const auto refuse = [&](const std::string& plan, int code,
                          const std::vector<std::string>& parts) {
    Args args = {"run", plan};
    args.insert(args.end(), report.begin(), report.end());
    ExpectError(args, code, parts);
    EXPECT_FALSE(std::filesystem::exists(Path("r.pb")));
  };
  const std::string plan = MakePlan();
  refuse(Path("none.pb"), 3, {"none.pb", "no such file"});
  refuse(Write("text.pb", "hello"), 3, {"text.pb"});
  std::ifstream file(plan, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  refuse(Write("half.pb", bytes.substr(0, bytes.size() / 2)), 3, {"half.pb"});
  pb::Plan other;
  ASSERT_TRUE(ReadMessage(plan, other).ok());
  other.mutable_header()->set_format_version(1);
  ASSERT_TRUE(WriteMessage(Path("old.pb"), other).ok());
  refuse(Path("old.pb"), 4, {"rule version", "1", "4"});
}

TEST_F(RunTest, APlanThatNeedsMoreMemoryThanThereIs) {
  const ProcessResult planned = RunForeshard({"plan", "--model", "llama-2-70b", "--world", "64",
                                              "--seq", "64", "-o", Path("big.pb"), "--quiet"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  ExpectError({"run", Path("big.pb"), "-o", Path("r.pb")}, 7,
              {"64 ranks need", "this machine has", "--world"});
  EXPECT_FALSE(std::filesystem::exists(Path("r.pb")));
}

TEST_F(RunTest, WeightsOfAnotherModel) {
  const std::string weights = Source("tests/exec/data/gpt2_weights.safetensors");
  ExpectError({"run", MakePlan(), "--weights", weights, "--save-weights", Path("w.safetensors")}, 3,
              {"gpt2_weights.safetensors", "model.embed_tokens.weight"});
  EXPECT_FALSE(std::filesystem::exists(Path("w.safetensors")));
  ExpectError({"run", MakePlan(), "--weights", Path("none.safetensors")}, 3, {"no such file"});
}

TEST_F(RunTest, DataThatCannotBeUsed) {
  const std::string plan = MakePlan();
  ExpectError({"run", plan, "--data", Write("short.txt", "too short")}, 3, {"short.txt", "65"});
  ExpectError({"run", plan, "--data", Path("none.txt")}, 3, {"no such file"});
  ExpectError({"run", plan, "--data", Write("data.csv", "1,2")}, 3, {"data.csv"});
}

TEST_F(RunTest, FlagsThatMakeNoSense) {
  const std::string plan = MakePlan();
  ExpectError({"run", plan, "--backend", "tpu"}, 2, {"--backend", "tpu", "cpu"});
  ExpectError({"run", plan, "--steps", "0"}, 2, {"--steps"});
  ExpectError({"run", plan, "--report-rank", "2"}, 2, {"--report-rank", "0 to 1"});
  ExpectError({"run"}, 2, {"plan"});
}

TEST_F(RunTest, OutputsThatCannotBeWritten) {
  const std::string plan = MakePlan();
  for (const char* flag : {"-o", "--save-weights", "--save-gradients"}) {
    const ProcessResult result =
        RunForeshard({"run", plan, flag, Path("no/folder/file.pb"), "--quiet"});
    EXPECT_EQ(result.exit_code, 2) << flag << result.err;
    EXPECT_THAT(result.err, HasSubstr("no/folder"));
  }
}

}  // namespace
}  // namespace foreshard
