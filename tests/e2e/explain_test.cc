// `foreshard explain`: one report, one plan, two of them, and files that are neither.
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kCluster = "dgx-a100-40g";

std::string Mib(int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (int64_t{1} << 20));
}

std::string Gib(const json& bytes) {
  return fmt::format("{:.2f}", bytes.get<double>() / (int64_t{1} << 30));
}

class ExplainTest : public CliTest {
 protected:
  // Writes the report of Llama-2-7B on 8 GPUs and returns its file.
  std::string Report(const std::string& name, const Args& more = {}) const {
    const Args args = Merge({"predict", "--model", "llama-2-7b", "--world", "8", "--seq", "2048",
                             "--cluster", kCluster, "--json", Path(name)},
                            more);
    RunForeshard(args);
    return Path(name);
  }
  json Explained(const Args& files) const {
    Args args = {"explain"};
    args.insert(args.end(), files.begin(), files.end());
    args.insert(args.end(), {"--json", "-"});
    return json::parse(RunForeshard(args).out);
  }
};

// Differences by "section/name".
std::map<std::string, json> ByName(const json& comparison) {
  std::map<std::string, json> all;
  for (const json& d : comparison.at("differences")) {
    all[d.at("section").get<std::string>() + "/" + d.at("name").get<std::string>()] = d;
  }
  return all;
}

TEST_F(ExplainTest, JsonOfOneReportIsTheReport) {
  const std::string file = Report("r.json");
  const ProcessResult result = RunForeshard({"explain", file, "--json", "-"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, Read("r.json"));
}

TEST_F(ExplainTest, UnitsAddUpToTheStep) {
  for (const std::string wrap : {"block", "every:3", "whole", "titan", "class:LlamaMLP"}) {
    for (const std::string reshard : {"true", "false"}) {
      const json r = json::parse(
          RunForeshard(Predict({"--wrap", wrap, "--reshard-after-forward", reshard, "--json", "-"}))
              .out);
      ASSERT_EQ(r.at("units").size(), r.at("setup").at("units").get<size_t>());
      std::map<std::string, int64_t> sums;
      for (const json& unit : r.at("units")) {
        for (const auto& [key, value] : unit.items()) {
          if (value.is_number()) sums[key] += value.get<int64_t>();
        }
        EXPECT_LE(unit.at("exposed_gather_ps"), unit.at("gather_ps"));
        EXPECT_LE(unit.at("exposed_reduce_ps"), unit.at("reduce_ps"));
        EXPECT_LE(unit.at("resident_ps"), r.at("timing").at("step_ps"));
        EXPECT_GT(unit.at("resident_ps"), 0);
      }
      std::map<std::string, int64_t> counts;
      for (const json& c : r.at("collectives")) counts[c.at("kind")] += c.at("count").get<int>();
      EXPECT_EQ(sums["gathers"], counts["all_gather"]);
      EXPECT_EQ(sums["reductions"], counts["reduce_scatter"]);
      EXPECT_EQ(sums["parameters"], r.at("setup").at("parameters"));
      const json& timing = r.at("timing");
      // One group, so collectives never run side by side: what they share adds up exactly.
      EXPECT_EQ(sums["gather_ps"] + sums["reduce_ps"], timing.at("communication_busy_ps"));
      EXPECT_EQ(sums["exposed_gather_ps"] + sums["exposed_reduce_ps"],
                timing.at("exposed_communication_ps"));
      int64_t shards = 0;
      for (const json& term : r.at("peak").at("ledger")) {
        if (term.at("name") == "sharded parameters") shards = term.at("bytes");
      }
      EXPECT_EQ(sums["shard_bytes"], shards);
    }
  }
}

TEST_F(ExplainTest, TextShowsTheNumbersOfTheJson) {
  const ProcessResult result = RunForeshard({"explain", Report("r.json")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const json r = json::parse(Read("r.json"));
  for (const json& term : r.at("peak").at("ledger")) {
    EXPECT_THAT(result.out, testing::ContainsRegex(term.at("name").get<std::string>() + " +" +
                                                   Gib(term.at("bytes"))));
  }
  EXPECT_THAT(result.out, HasSubstr(r.at("peak").at("at").at("module").get<std::string>()));
  for (const json& unit : {r.at("units").front(), r.at("units").back()}) {
    EXPECT_THAT(result.out, HasSubstr(Mib(unit.at("gather_bytes"))));
    EXPECT_THAT(result.out, HasSubstr(Mib(unit.at("shard_bytes"))));
  }
  const json& timing = r.at("timing");
  EXPECT_THAT(result.out, HasSubstr(fmt::format("Step time {:.3f} ms",
                                                timing.at("step_ps").get<double>() * 1e-9)));
  for (const json& c : r.at("collectives")) {
    EXPECT_THAT(result.out,
                testing::ContainsRegex(fmt::format(
                    "{} +{} +{} +{} +{} +{}", c.at("kind"), c.at("phase"), c.at("group"),
                    c.at("ranks").get<int>(), c.at("count").get<int>(), Gib(c.at("input_bytes")))));
  }
}

TEST_F(ExplainTest, EveryLiveBufferIsInTheTextAndLayersAreFolded) {
  const std::string text = RunForeshard({"explain", Report("r.json")}).out;
  const json r = json::parse(Read("r.json"));
  std::map<std::string, int64_t> optimizer;  // bytes by owner
  for (const json& group : r.at("peak").at("live")) {
    if (group.at("category") == "optimizer_state") optimizer[group.at("owner")] = group.at("bytes");
  }
  ASSERT_EQ(optimizer.size(), 33u);
  // 32 equal layers are one line with what they hold together.
  EXPECT_THAT(text, testing::ContainsRegex(" " + Mib(32 * optimizer["model.layers.0"]) +
                                           " +[0-9.]+ +864 +optimizer state +model.layers.0..31 "
                                           "x32\n"));
  EXPECT_THAT(text, testing::ContainsRegex(" optimizer state +<root>\n"));
  std::istringstream lines(text);
  double sum = 0;
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    double mib = 0;
    if (line.find("alive then") != std::string::npos) {
      in_table = true;
    } else if (in_table && !(words >> mib)) {
      break;
    }
    sum += mib;
  }
  const double peak = r.at("peak").at("bytes").get<double>() / (1 << 20);
  EXPECT_NEAR(sum, peak, 0.5) << "no group is left out";
}

TEST_F(ExplainTest, UnitsAreFoldedWhereTheyAreAlike) {
  const std::string text = RunForeshard({"explain", Report("r.json")}).out;
  EXPECT_THAT(text, testing::ContainsRegex("model.layers.[0-9]+..[0-9]+ x[0-9]+ +202,383,360"));
  const std::string grouped =
      RunForeshard({"explain", Report("g.json", {"--wrap", "every:4"})}).out;
  // 4 x 202,383,360 parameters, 8 units of 4 layers.
  EXPECT_THAT(grouped, testing::ContainsRegex("model.layers.[0-9]+..[0-9]+ x[0-9]+ +809,533,440"));
  EXPECT_THAT(grouped, Not(HasSubstr("model.layers.1+model.layers.2")));
}

TEST_F(ExplainTest, PlansOfEveryFormatAreSimulated) {
  const std::string expected = RunForeshard(Predict({"--json", "-"})).out;
  for (const std::string suffix : {"pb", "textproto", "json"}) {
    const std::string plan = Path("plan." + suffix);
    ASSERT_EQ(RunForeshard(Plan({"-o", plan})).exit_code, 0);
    const ProcessResult result =
        RunForeshard({"explain", plan, "--cluster", "dgx-a100-80g", "--json", "-"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, expected) << suffix;
    ExpectError({"explain", plan}, 2, {"plan." + suffix + ": a plan", "--cluster"});
  }
}

TEST_F(ExplainTest, WhatDoesNotFitIsExplainedAsWell) {
  const std::string file = Report("r.json", {"--world", "2"});
  const ProcessResult result = RunForeshard({"explain", file});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("DOES NOT FIT"));
}

TEST_F(ExplainTest, AReportComparedWithItselfHasNoDifference) {
  const std::string file = Report("r.json");
  const ProcessResult result = RunForeshard({"explain", file, file});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\nno difference\n"));
  EXPECT_TRUE(Explained({file, file}).at("differences").empty());
}

TEST_F(ExplainTest, TwoReportsShowWhatDiffersAndNothingElse) {
  const std::string a = Report("a.json");
  const std::string b = Report("b.json", {"--reshard-after-forward", "false"});
  const json left = json::parse(Read("a.json"));
  const json right = json::parse(Read("b.json"));
  const json comparison = Explained({a, b});
  EXPECT_EQ(comparison.at("schema_version"), 1);
  EXPECT_EQ(comparison.at("a"), a);
  const auto all = ByName(comparison);
  for (const auto& [name, d] : all) EXPECT_NE(d.at("a"), d.at("b")) << name;
  EXPECT_EQ(all.at("setup/reshard after forward").at("a"), "");
  EXPECT_EQ(all.at("setup/reshard after forward").at("b"), "false");
  EXPECT_FALSE(all.contains("setup/cluster"));
  const json& peak = all.at("fit/peak");
  EXPECT_EQ(peak.at("unit"), "bytes");
  EXPECT_EQ(peak.at("a"), left.at("fit").at("peak_bytes"));
  EXPECT_EQ(peak.at("b"), right.at("fit").at("peak_bytes"));
  EXPECT_EQ(peak.at("change"), right.at("fit").at("peak_bytes").get<int64_t>() -
                                   left.at("fit").at("peak_bytes").get<int64_t>());
  // Nothing is gathered for backward any more.
  EXPECT_EQ(all.at("collectives/all_gather backward shard count").at("b"), 0);
  EXPECT_TRUE(all.contains("timing/step"));
  const std::string text = RunForeshard({"explain", a, b}).out;
  std::set<std::string> sections;
  for (const json& d : comparison.at("differences")) {
    sections.insert(d.at("section"));
    // Names give way where lines are full.
    EXPECT_THAT(text, HasSubstr(d.at("name").get<std::string>().substr(0, 40)));
  }
  for (const std::string& section : sections) EXPECT_THAT(text, HasSubstr("\n" + section + "\n"));
  EXPECT_THAT(sections, testing::IsSupersetOf({"setup", "fit", "ledger", "phases", "timing",
                                               "collectives", "units"}));
}

TEST_F(ExplainTest, LedgerChangesAddUpToThePeak) {
  const auto all = ByName(Explained({Report("a.json"), Report("b.json", {"--wrap", "whole"})}));
  int64_t sum = 0;
  for (const auto& [name, d] : all) {
    if (name.starts_with("ledger/")) sum += d.at("change").get<int64_t>();
  }
  EXPECT_EQ(sum, all.at("fit/peak").at("change").get<int64_t>());
}

TEST_F(ExplainTest, UnitsThatOnlyOneReportHasStandAlone) {
  const json comparison = Explained({Report("a.json"), Report("b.json", {"--wrap", "every:2"})});
  int only_a = 0;
  int only_b = 0;
  for (const json& d : comparison.at("differences")) {
    if (d.at("section") != "units") continue;
    if (d.at("b").is_null()) {
      ++only_a;
      EXPECT_EQ(d.at("a").at("parameters"), 202383360);
    } else if (d.at("a").is_null()) {
      ++only_b;
      EXPECT_EQ(d.at("b").at("parameters"), 2 * 202383360);
    }
  }
  EXPECT_GT(only_a, 0);
  EXPECT_GT(only_b, 0);
}

TEST_F(ExplainTest, AReportAndAPlanCompareToo) {
  const std::string report = Path("r.json");
  ASSERT_EQ(RunForeshard(Predict({"--json", report})).exit_code, 0);
  ASSERT_EQ(RunForeshard(Plan({"-o", Path("p.pb")})).exit_code, 0);
  const ProcessResult result =
      RunForeshard({"explain", report, Path("p.pb"), "--cluster", "dgx-a100-80g"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("no difference"));
}

TEST_F(ExplainTest, FilesThatAreNeither) {
  ExpectError({"explain", Path("gone.json")}, 3, {"gone.json", "no such file"});
  ExpectError({"explain", Path("gone.pb")}, 3, {"gone.pb", "no such file"});
  ExpectError({"explain", Write("a.json", "{}")}, 3, {"a.json: found neither", "report", "plan"});
  ExpectError({"explain", Write("b.json", "[1]")}, 3, {"b.json: found neither"});
  ExpectError({"explain", Write("c.json", "{")}, 3, {"c.json:1:"});
  ExpectError({"explain", Write("d.json", R"({"reports": []})")}, 3, {"d.json: a table"});
  ExpectError({"explain", Write("e.json", R"({"fit": {"fist": 1}})")}, 3, {"e.json", "fist"});
  ExpectError({"explain", Write("f.textproto", "")}, 3,
              {"neither a report", "f.textproto: schema_version is 0", "nor a plan", "no header"});
  ExpectError({"explain", Write("g.textproto", "nonsense: 1")}, 3,
              {"neither a report", "nor a plan", "g.textproto:1:"});
  ExpectError({"explain", Write("h.txt", "")}, 3, {"h.txt: unknown suffix"});
  ExpectError({"explain", Write("i.json", R"({"header": {}, "mesh": {}})")}, 4,
              {"i.json: rule version"});
}

TEST_F(ExplainTest, ReportsThatSayLittle) {
  const std::string empty = Write("e.json", R"({"schema_version": 1, "fit": {}})");
  const ProcessResult alone = RunForeshard({"explain", empty});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  const ProcessResult both = RunForeshard({"explain", empty, Report("r.json")});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("\nledger\n"));
  const std::string huge = R"({"schema_version": 1, "units": [{"gather_ps": 9000000000000000000}],
                               "fit": {"peak_bytes": -9223372036854775808}})";
  ExpectError({"explain", Write("h.json", huge)}, 3, {"h.json", "more than 64 bits"});
}

TEST_F(ExplainTest, TheTextbookStandsBesideTheSimulatedFigures) {
  const std::string text = RunForeshard({"explain", Report("r.json")}).out;
  const json book = json::parse(Read("r.json")).at("textbook");
  EXPECT_THAT(text,
              testing::ContainsRegex("sharded +16 P / N +" + Gib(book.at("persistent_bytes"))));
  int64_t sum =
      book.at("persistent_bytes").get<int64_t>() + book.at("transient_bytes").get<int64_t>();
  for (const json& term : book.at("difference")) {
    sum += term.at("bytes").get<int64_t>();
    EXPECT_THAT(text, testing::ContainsRegex("[+-] " + term.at("name").get<std::string>() + " +" +
                                             Gib(term.at("bytes"))));
  }
  EXPECT_EQ(sum, book.at("managed_peak_bytes").get<int64_t>());
}

TEST_F(ExplainTest, ClustersAndFilesThatAreTooMany) {
  const std::string report = Path("r.json");
  ASSERT_EQ(RunForeshard(Predict({"--json", report})).exit_code, 0);
  ExpectError({"explain", report, "--cluster", "dgx-h100"}, 2, {"--cluster", "report"});
  EXPECT_EQ(RunForeshard({"explain", report, report, report}).exit_code, 2);
  ExpectError({"explain"}, 2, {"files is required"});
}

// Both lists explain the difference to the byte, and the text shows where it comes from.
TEST_F(ExplainTest, WhyBiggerSumsToTheDifferenceOfThePeaks) {
  const std::string kept = Report("kept.json");
  const std::string recomputed = Report("recomputed.json", {"--ac", "block"});
  const auto peak = [](const std::string& file) {
    std::ifstream stream(file);
    return json::parse(stream).at("peak").at("bytes").get<int64_t>();
  };
  const json diff = Explained({"--why-bigger", kept, recomputed});
  for (const char* list : {"ledger", "buffers"}) {
    int64_t change = 0;
    for (const json& row : diff.at(list)) change += row.at("change").get<int64_t>();
    EXPECT_EQ(change, peak(recomputed) - peak(kept)) << list;
  }
  EXPECT_LT(diff.at("buffers").at(0).at("change"), 0);
  const ProcessResult text = RunForeshard({"explain", "--why-bigger", kept, recomputed});
  EXPECT_THAT(text.out, HasSubstr("buffers that differ"));
  EXPECT_THAT(text.out, HasSubstr("LlamaDecoderLayer"));
  ExpectError({"explain", "--why-bigger", kept}, 2, {"--why-bigger: found one file, expected two"});
}

}  // namespace
}  // namespace foreshard
