// The loop that the tool is for: plan, predict, run, hold one against the other.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "proto/base/status.h"
#include "proto/io.h"
#include "proto/report.pb.h"
#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CompareTest : public CliTest {
 protected:
  static std::string Config(const std::string& model) {
    return std::string(FORESHARD_SOURCE_DIR) + "/tests/exec/data/" + model + "_config.json";
  }

  std::string MakePlan(const std::string& model, int world, const Args& more = {}) const {
    Args args = {"plan",  "--model", Config(model), "--world",      std::to_string(world),
                 "--seq", "8",       "-o",          Path("plan.pb")};
    args.insert(args.end(), more.begin(), more.end());
    const ProcessResult result = RunForeshard(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Path("plan.pb");
  }
  std::string MakePrediction(const std::string& plan, int rank, const std::string& name) const {
    const ProcessResult result = RunForeshard({"sim", plan, "--cluster", "dgx-a100-80g", "--rank",
                                               std::to_string(rank), "-o", Path(name), "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Path(name);
  }
  std::string MakeMeasurement(const std::string& plan, int rank, const std::string& name,
                              int steps = 3) const {
    const ProcessResult result =
        RunForeshard({"run", plan, "--report-rank", std::to_string(rank), "--steps",
                      std::to_string(steps), "-o", Path(name), "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Path(name);
  }

  static pb::Report ReadReport(const std::string& path) {
    pb::Report report;
    EXPECT_TRUE(ReadMessage(path, report).ok()) << path;
    return report;
  }
  std::string WriteReport(const std::string& name, const pb::Report& report) const {
    EXPECT_TRUE(WriteMessage(Path(name), report).ok());
    return Path(name);
  }

  static const json& Verdict(const json& result, const std::string& tolerance) {
    for (const json& verdict : result.at("verdicts")) {
      if (verdict.at("tolerance") == tolerance) return verdict;
    }
    ADD_FAILURE() << tolerance;
    return result;
  }
};

class LoopTest : public CompareTest, public testing::WithParamInterface<const char*> {};

TEST_P(LoopTest, WhatIsMeasuredIsWhatWasPredictedOnEveryRank) {
  for (const std::string model : {"llama", "gpt2"}) {
    for (const int world : {1, 2, 3}) {
      const std::string plan = MakePlan(model, world, {"--kernel-profile", GetParam()});
      for (int rank = 0; rank < world; ++rank) {
        const ProcessResult result =
            RunForeshard({"compare", MakePrediction(plan, rank, "predicted.pb"),
                          MakeMeasurement(plan, rank, "measured.pb"), "--json", "-"});
        const std::string what = fmt::format("{} on rank {} of {}", model, rank, world);
        EXPECT_EQ(result.exit_code, 0) << what << result.err;
        const json found = json::parse(result.out);
        EXPECT_EQ(found.at("b").at("rank"), rank) << what;
        EXPECT_GT(found.at("memory").at("ops"), 100) << what;
        EXPECT_EQ(found.at("memory").at("equal"), found.at("memory").at("ops")) << what;
        EXPECT_GT(Verdict(found, "peak").at("compared"), 20) << what;
        EXPECT_GT(Verdict(found, "places").at("compared"), 10) << what;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, LoopTest,
                         testing::Values("torch-cpu", "torch-cuda", "foreshard"),
                         [](const auto& profile) {
                           std::string name = profile.param;
                           std::erase(name, '-');
                           return name;
                         });

// Of three ranks the last holds padding; of four there are two replicas. A run of six steps has
// every program, and the steady one more than once.
TEST_F(CompareTest, FlatParametersHoldWhatWasPredictedOnEveryRank) {
  const std::vector<Args> choices = {
      {"--strategy", "full_shard"},
      {"--strategy", "full_shard", "--use-orig-params"},
      {"--strategy", "shard_grad_op"},
      {"--strategy", "no_shard"},
      {"--strategy", "hybrid_shard", "--replicate", "2"},
      {"--strategy", "hybrid_shard_zero2", "--replicate", "2", "--use-orig-params"},
  };
  for (const Args& choice : choices) {
    const bool has_replicas = choice.size() > 2 && choice[2] == "--replicate";
    const int world = has_replicas ? 4 : 3;
    const std::string plan = MakePlan("llama", world, choice);
    for (int rank = 0; rank < world; ++rank) {
      const ProcessResult result =
          RunForeshard({"compare", MakePrediction(plan, rank, "predicted.pb"),
                        MakeMeasurement(plan, rank, "measured.pb", 6), "--json", "-"});
      const std::string what = fmt::format("{} on rank {}", fmt::join(choice, " "), rank);
      EXPECT_EQ(result.exit_code, 0) << what << result.err;
      const json found = json::parse(result.out);
      EXPECT_GT(found.at("memory").at("ops"), 100) << what;
      EXPECT_EQ(found.at("memory").at("equal"), found.at("memory").at("ops")) << what;
    }
  }
}

TEST_F(CompareTest, FilesOfAnyFormatAndLengthOfRunAreJoined) {
  const std::string plan = MakePlan("gpt2", 2);
  for (const auto& [predicted, measured] :
       {std::pair("p.json", "m.textproto"), std::pair("p.textproto", "m.json")}) {
    const ProcessResult result = RunForeshard(
        {"compare", MakePrediction(plan, 0, predicted), MakeMeasurement(plan, 0, measured, 7)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST_F(CompareTest, PredictWritesTheSameReportAsPlanAndSim) {
  const std::string predicted = MakePrediction(MakePlan("llama", 3), 2, "sim.pb");
  const ProcessResult result = RunForeshard(
      {"predict", "--model", Config("llama"), "--world", "3", "--seq", "8", "--cluster",
       "dgx-a100-80g", "--rank", "2", "-o", Path("predict.pb"), "--json", Path("summary.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("predicted, rank 2"));
  EXPECT_EQ(Read("predict.pb"), Read("sim.pb"));
  pb::Report summary = ReadReport(predicted);
  EXPECT_GT(summary.timeline().ops_size(), 0);
  summary.clear_timeline();
  EXPECT_EQ(ReadReport(Path("summary.json")).SerializeAsString(), summary.SerializeAsString());
}

TEST_F(CompareTest, TheTextSaysWhatEachIsAndThatTimesAreNotJudged) {
  const std::string plan = MakePlan("llama", 2);
  const ProcessResult result = RunForeshard(
      {"compare", MakePrediction(plan, 0, "p.pb"), MakeMeasurement(plan, 0, "m.pb", 4)});
  EXPECT_THAT(result.out, testing::StartsWith("llama_config on 2 ranks"));
  EXPECT_THAT(result.out, HasSubstr("predicted: simulated on 2 x A100-SXM4-80GB (dgx-a100-80g)"));
  EXPECT_THAT(result.out, HasSubstr("measured:  4 steps of 2 ranks on the cpu backend: "));
  EXPECT_THAT(result.out, testing::ContainsRegex("time +not judged"));
  EXPECT_THAT(result.out, testing::EndsWith("WITHIN TOLERANCE\n"));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST_F(CompareTest, WhatDiffersIsARegressionThatNamesTheOp) {
  const std::string path = MakePrediction(MakePlan("llama", 2), 0, "a.pb");
  pb::Report report = ReadReport(path);
  // The first activation that a kernel allocates, an element less.
  int index = 0;
  pb::CategoryBytes* row = nullptr;
  for (; row == nullptr; ++index) {
    ASSERT_LT(index, report.timeline().ops_size());
    for (auto& one : *report.mutable_timeline()->mutable_ops(index)->mutable_allocated()) {
      if (one.category() == pb::ACTIVATION) row = &one;
    }
  }
  const int64_t bytes = row->bytes();
  row->set_bytes(bytes - 4);
  const pb::TimelineOp& op = report.timeline().ops(index - 1);
  const ProcessResult result =
      RunForeshard({"compare", path, WriteReport("b.pb", report), "--json", Path("found.json")});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("they part at program first, forward, compute " + op.kernel() +
                                    ", module " + op.module()));
  EXPECT_THAT(result.out, HasSubstr("allocated by this op"));
  EXPECT_THAT(result.out, testing::EndsWith("BEYOND TOLERANCE\n"));
  const json found = json::parse(Read("found.json"));
  EXPECT_EQ(found.at("schema_version"), 1);
  EXPECT_EQ(found.at("within"), false);
  EXPECT_EQ(Verdict(found, "peak").at("within"), true);
  EXPECT_EQ(Verdict(found, "memory").at("within"), false);
  const json& first = found.at("memory").at("first_difference");
  EXPECT_EQ(first.at("index"), index - 1);
  EXPECT_EQ(first.at("op").at("kernel"), op.kernel());
  EXPECT_EQ(first.at("moment"), "allocated");
  EXPECT_EQ(first.at("changes")[0].at("category"), "activation");
  EXPECT_EQ(first.at("changes")[0].at("a_bytes"), bytes);
  EXPECT_EQ(first.at("changes")[0].at("change_bytes"), -4);
  EXPECT_EQ(RunForeshard({"compare", path, Path("b.pb"), "--tolerance", "memory=4"}).exit_code, 0);
}

TEST_F(CompareTest, TwoOfOneSourceAreCalledAAndB) {
  const std::string path = MakePrediction(MakePlan("llama", 2), 0, "a.pb");
  pb::Report slower = ReadReport(path);
  slower.mutable_timing()->set_step_ps(slower.timing().step_ps() * 2);
  const std::string other = WriteReport("b.pb", slower);
  const ProcessResult shown = RunForeshard({"compare", path, other});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, HasSubstr("\nA:         predicted, simulated on 2 x A100-SXM4-80GB"));
  const ProcessResult judged = RunForeshard({"compare", path, other, "--tolerance", "time=50%"});
  EXPECT_EQ(judged.exit_code, 6);
  EXPECT_THAT(judged.out, HasSubstr("<- beyond"));
  EXPECT_THAT(judged.out, testing::ContainsRegex("time=50% +BEYOND: 1 of "));
}

TEST_F(CompareTest, ReportsThatDoNotBelongTogetherAreRefused) {
  const std::string plan = MakePlan("llama", 2);
  const std::string a = MakePrediction(plan, 0, "a.pb");
  const std::string rank1 = MakeMeasurement(plan, 1, "rank1.pb");
  const std::string one_step = MakeMeasurement(plan, 0, "one.pb", 1);
  ExpectError({"compare", a, rank1}, 2, {"different ranks", "0 in ", "1 in ", "--report-rank"});
  ExpectError({"compare", a, one_step}, 2, {"one.pb: no op of program steady", "--steps 2"});
  const std::string wider = MakePrediction(MakePlan("llama", 3), 0, "wider.pb");
  ExpectError({"compare", a, wider}, 2, {"different plans: the world size is 2 in", "3 in"});
  const std::string other = MakePrediction(MakePlan("gpt2", 2), 0, "gpt2.pb");
  ExpectError({"compare", a, other}, 2, {"the model is llama_config in", "gpt2_config in"});
  const std::string kernels =
      MakePrediction(MakePlan("llama", 2, {"--kernel-profile", "torch-cpu"}), 0, "kernels.pb");
  ExpectError({"compare", a, kernels}, 2, {"different plans: op ", " of the timeline is compute"});
}

TEST_F(CompareTest, FilesThatCannotBeJoinedAreRefused) {
  const std::string plan = MakePlan("llama", 2);
  const std::string a = MakePrediction(plan, 0, "a.pb");
  ExpectError({"compare", a}, 2, {"measured is required"});
  ExpectError({"compare", a, Path("gone.pb")}, 3, {"gone.pb", "no such file"});
  ExpectError({"compare", a, plan}, 2, {"plan.pb: a plan", "foreshard run"});
  ASSERT_EQ(
      RunForeshard({"sim", plan, "--cluster", "dgx-a100-80g", "--json", Path("s.json")}).exit_code,
      0);
  ExpectError({"compare", Path("s.json"), a}, 3, {"s.json: the report lists no ops", "-o FILE"});
  pb::Report bad = ReadReport(a);
  bad.mutable_timeline()->mutable_ops(3)->set_program(9);
  ExpectError({"compare", a, WriteReport("program.json", bad)}, 3,
              {"program.json: timeline.ops[3]: found program 9"});
  bad = ReadReport(a);
  bad.mutable_timeline()->mutable_ops(3)->set_start_ps(int64_t{1} << 62);
  ExpectError({"compare", a, WriteReport("time.json", bad)}, 3,
              {"time.json: timeline.ops[3]: found times from "});
  bad = ReadReport(a);
  bad.mutable_timeline()->mutable_ops(3)->add_freed()->set_bytes(int64_t{1} << 62);
  ExpectError({"compare", a, WriteReport("sum.json", bad)}, 3, {"sum.json", "64 bits"});
}

TEST_F(CompareTest, FlagsThatMakeNoSenseAreRefused) {
  const std::string plan = MakePlan("llama", 2);
  const std::string a = MakePrediction(plan, 0, "a.pb");
  ExpectError({"compare", a, a, "--tolerance", "pek=0"}, 2,
              {"--tolerance", "\"pek\"", "peak, memory, places, time", "did you mean peak?"});
  ExpectError({"compare", a, a, "--tolerance", "peak=little"}, 2,
              {"--tolerance", "\"little\"", "1MiB"});
  ExpectError({"sim", plan, "--cluster", "dgx-a100-80g", "--rank", "2"}, 2,
              {"--rank: 2 of a plan for 2 ranks, expected 0 to 1"});
  ExpectError({"sim", plan, "--cluster", "dgx-a100-80g", "--rank", "-1"}, 2, {"--rank"});
  ExpectError({"sim", plan, "--cluster", "dgx-a100-80g", "-o", Path("no/such.pb")}, 2,
              {"--output", "no/such"});
  ExpectError({"sim", plan, "--cluster", "dgx-a100-80g", "-o", Path("r.txt")}, 2,
              {"--output", "r.txt", "suffix"});
  ExpectError({"predict", "--model", Config("llama"), "--world", "2", "--seq", "8", "--seq", "16",
               "--cluster", "dgx-a100-80g", "-o", Path("r.pb")},
              2, {"--output: found 2 combinations, expected one"});
}

}  // namespace
}  // namespace foreshard
