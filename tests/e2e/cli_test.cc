#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Gib(const json& bytes) {
  return fmt::format("{:.2f}", bytes.get<double>() / (int64_t{1} << 30));
}

TEST_F(CliTest, HelpShowsAnExampleAndTheExitCodesOfEveryVerb) {
  for (const std::string verb :
       {"predict", "plan", "check", "sim", "explain", "compare", "inspect", "list"}) {
    const ProcessResult help = RunForeshard({verb, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_THAT(help.out, HasSubstr("Example:\n  foreshard " + verb));
    EXPECT_THAT(help.out, HasSubstr("--json FILE"));
    EXPECT_THAT(help.out, HasSubstr("\n  130  interrupted\n"));
    EXPECT_THAT(RunForeshard({"--help"}).out, HasSubstr("\n  " + verb + " "));
  }
}

TEST_F(CliTest, HelpDocumentsEachExitCode) {
  const std::string help = RunForeshard({"--help"}).out;
  for (const char* line : {"\n  0    done", "\n  1    internal", "\n  2    usage",
                           "\n  3    bad input", "\n  4    invalid plan", "\n  5    does not fit",
                           "\n  6    regression", "\n  7    environment", "\n  130  interrupted"}) {
    EXPECT_THAT(help, HasSubstr(line));
  }
}

TEST_F(CliTest, VersionGoesToStdout) {
  const ProcessResult result = RunForeshard({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, testing::StartsWith("foreshard "));
}

TEST_F(CliTest, ListShowsEverythingThatCanBeNamed) {
  const ProcessResult text = RunForeshard({"list"});
  EXPECT_EQ(text.exit_code, 0);
  for (const char* name :
       {"llama-2-7b", "dgx-a100-80g", "torch-cuda", "hybrid_shard", "class:A,B"}) {
    EXPECT_THAT(text.out, HasSubstr(name));
  }
  const json lists = json::parse(RunForeshard({"list", "--json", "-"}).out);
  EXPECT_EQ(lists.at("schema_version"), 1);
  EXPECT_THAT(lists.at("models").get<Args>(), testing::Contains("llama-3-8b"));
}

TEST_F(CliTest, SgdIsToldByItsFlags) {
  const ProcessResult result =
      RunForeshard(Predict({"--optimizer", "sgd", "--momentum", "0.9", "--weight-decay", "0.1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("SGD (fused) with momentum 0.9 in fp32 and weight decay 0.1"));
  const ProcessResult plain = RunForeshard(Predict({"--optimizer", "sgd"}));
  EXPECT_THAT(plain.out, HasSubstr("SGD (fused) without momentum"));
  EXPECT_THAT(plain.out, testing::Not(HasSubstr("optimizer state")));
}

TEST_F(CliTest, OneRankSendsNothing) {
  const ProcessResult result = RunForeshard(Predict({"--world", "1"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("one rank: nothing is sent"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("Collectives of one step")));
}

TEST_F(CliTest, InspectFoldsRepeatedLayers) {
  const ProcessResult result = RunForeshard({"inspect", "llama-2-7b"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("6,738,415,616 parameters"));
  EXPECT_THAT(result.out, HasSubstr("0..31 x32"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("[4096, 4096]")));
  EXPECT_THAT(RunForeshard({"inspect", "llama-2-7b", "--params"}).out, HasSubstr("[4096, 4096]"));
}

TEST_F(CliTest, InspectNamesTheOwnerOfATiedParameter) {
  EXPECT_THAT(RunForeshard({"inspect", "llama-3.2-1b", "--params"}).out,
              HasSubstr("[128256, 2048] = model.embed_tokens.weight"));
}

TEST_F(CliTest, JsonOnStdoutIsAlone) {
  const ProcessResult result = RunForeshard(Predict({"--json", "-"}));
  EXPECT_EQ(result.exit_code, 0);
  const json report = json::parse(result.out);
  EXPECT_TRUE(report.at("schema_version").is_number_integer());
  EXPECT_TRUE(report.at("fit").at("peak_bytes").is_number_integer());
  EXPECT_TRUE(report.at("fit").at("headroom_bytes").is_number_integer());
  EXPECT_TRUE(report.at("timing").at("step_ps").is_number_integer());
  EXPECT_THAT(result.err, HasSubstr("FITS"));
}

TEST_F(CliTest, QuietPrintsNoText) {
  Args args = Predict({"--json", Path("r.json")});
  args.push_back("--quiet");
  const ProcessResult result = RunForeshard(args);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_TRUE(json::parse(Read("r.json")).contains("fit"));
}

TEST_F(CliTest, PlanThenCheckThenSimEqualsPredict) {
  for (const std::string suffix : {"pb", "textproto", "json"}) {
    const std::string plan = Path("plan." + suffix);
    ASSERT_EQ(RunForeshard(Plan({"-o", plan})).exit_code, 0);
    const ProcessResult check = RunForeshard({"check", plan});
    EXPECT_EQ(check.exit_code, 0) << check.err;
    EXPECT_THAT(check.out, HasSubstr("plan." + suffix + ": ok"));
    const ProcessResult sim =
        RunForeshard({"sim", plan, "--cluster", "dgx-a100-80g", "--json", "-"});
    EXPECT_EQ(sim.out, RunForeshard(Predict({"--json", "-"})).out) << suffix;
  }
}

TEST_F(CliTest, PlanTakesTheArchitectureOfACluster) {
  ASSERT_EQ(RunForeshard(Plan({"--cluster", "dgx-h100", "-o", Path("p.json")})).exit_code, 0);
  EXPECT_EQ(json::parse(Read("p.json")).at("decisions").at("arch"), "sm90");
}

TEST_F(CliTest, SameInputGivesTheSameBytes) {
  const Args args = Predict({"--json", "-"});
  EXPECT_EQ(RunForeshard(args).out, RunForeshard(args).out);
}

TEST_F(CliTest, WhatDoesNotFitIsReportedAndHasItsExitCode) {
  // 70 billion parameters with gradients and state in fp32 are 1 TB; two GPUs have 160 GB.
  const Args args = {"predict", "--model", "llama-2-70b", "--cluster", "dgx-a100-80g", "--world",
                     "2",       "--seq",   "512",         "--json",    Path("r.json")};
  const ProcessResult result = RunForeshard(args);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("DOES NOT FIT: short by "));
  const json report = json::parse(Read("r.json"));
  EXPECT_LT(report.at("fit").at("headroom_bytes").get<int64_t>(), 0);
}

TEST_F(CliTest, TextShowsTheNumbersOfTheJson) {
  const ProcessResult result =
      RunForeshard({"predict", "--model", "llama-2-7b", "--cluster", "dgx-a100-80g", "--world", "8",
                    "--seq", "4096", "--json", Path("r.json")});
  EXPECT_EQ(result.exit_code, 0);
  const json r = json::parse(Read("r.json"));
  EXPECT_EQ(r.at("setup").at("parameters"), 6738415616);
  EXPECT_THAT(result.out, HasSubstr("6,738,415,616 parameters"));
  EXPECT_THAT(result.out, HasSubstr("headroom " + Gib(r.at("fit").at("headroom_bytes")) + " GiB"));
  EXPECT_THAT(result.out, HasSubstr("peak " + Gib(r.at("fit").at("peak_bytes")) + " GiB"));
  int64_t sum = 0;
  for (const json& term : r.at("peak").at("ledger")) {
    // Protobuf's JSON leaves zeros out.
    const json bytes = term.value("bytes", json(0));
    sum += bytes.get<int64_t>();
    EXPECT_THAT(result.out,
                testing::ContainsRegex(term.at("name").get<std::string>() + " +" + Gib(bytes)));
  }
  EXPECT_EQ(sum, r.at("peak").at("bytes").get<int64_t>());
  EXPECT_THAT(result.out,
              HasSubstr(fmt::format("Step time {:.3f} ms",
                                    1e-9 * r.at("timing").at("step_ps").get<double>())));
  EXPECT_THAT(result.out,
              HasSubstr(fmt::format("MFU {:.1f} %", 100 * r.at("timing").at("mfu").get<double>())));
  EXPECT_THAT(result.out, HasSubstr("first order, not calibrated"));
}

TEST_F(CliTest, TracesAreWrittenBesideTheReport) {
  const ProcessResult result = RunForeshard(Predict({"--trace", Path("step.pftrace")}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, RunForeshard(Predict()).out);
  const std::string trace = Read("step.pftrace");
  EXPECT_GT(trace.size(), 1000u);
  EXPECT_EQ(trace[0], '\x0a');  // field 1 of perfetto.protos.Trace: a packet
  EXPECT_THAT(trace, HasSubstr("gather_copy_in"));
}

TEST_F(CliTest, CheckVerboseListsRedundantWaits) {
  ASSERT_EQ(RunForeshard(Plan({"--output", Path("p.pb")})).exit_code, 0);
  const ProcessResult brief = RunForeshard({"check", Path("p.pb")});
  const ProcessResult verbose = RunForeshard({"check", Path("p.pb"), "--verbose"});
  EXPECT_EQ(verbose.exit_code, 0) << verbose.err;
  EXPECT_THAT(brief.out, HasSubstr("redundant"));
  EXPECT_THAT(brief.out, testing::Not(HasSubstr("all_gather waits for copy_out")));
  EXPECT_THAT(verbose.out, HasSubstr("all_gather waits for copy_out"));
}

TEST_F(CliTest, TextKeepsToHundredColumnsAndOneScreen) {
  const ProcessResult result = RunForeshard({"predict", "--model", "llama-2-7b", "--cluster",
                                             "dgx-a100-80g", "--world", "16", "--seq", "4096"});
  std::istringstream lines(result.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_LE(count, 60);
}

}  // namespace
}  // namespace foreshard
