// Flags that repeat: one row for each combination.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class TableTest : public CliTest {
 protected:
  // A prediction of a small model with more flags, which may repeat.
  Args Table(const Args& more) const {
    Args args = {"predict", "--model", Write("tiny.json", kTinyConfig)};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

Args Lines(const std::string& text) {
  Args lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Args Cells(const std::string& line) {
  Args cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

const Args kLlama7b40g = {
    "predict",   "--model",      "llama-2-7b", "--world",       "8",      "--seq",   "2048",
    "--cluster", "dgx-a100-40g", "--wrap",     "block",         "--wrap", "every:2", "--wrap",
    "every:4",   "--wrap",       "whole",      "--micro-batch", "1"};

TEST_F(TableTest, EachRowIsTheReportOfItsOwnPrediction) {
  const ProcessResult table = RunForeshard(Table({"--wrap",
                                                  "block",
                                                  "--wrap",
                                                  "every:2",
                                                  "--wrap",
                                                  "whole",
                                                  "--world",
                                                  "8",
                                                  "--world",
                                                  "16",
                                                  "--cluster",
                                                  "dgx-a100-40g",
                                                  "--cluster",
                                                  "dgx-h100",
                                                  "--seq",
                                                  "16",
                                                  "--seq",
                                                  "32",
                                                  "--micro-batch",
                                                  "1",
                                                  "--micro-batch",
                                                  "3",
                                                  "--reshard-after-forward",
                                                  "true",
                                                  "--reshard-after-forward",
                                                  "false",
                                                  "--json",
                                                  "-"}));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const Json json = Json::parse(table.out);
  EXPECT_EQ(json.at("schema_version"), 1);
  ASSERT_EQ(json.at("reports").size(), 3u * 2 * 2 * 2 * 2 * 2);
  std::set<std::string> distinct;
  for (size_t i = 0; i < json.at("reports").size(); ++i) {
    const Json& row = json.at("reports")[i];
    const Json& setup = row.at("setup");
    distinct.insert(setup.dump());
    if (i % 7 != 0) continue;  // a process each
    const ProcessResult single = RunForeshard(
        Table({"--wrap", setup.at("wrap_policy"), "--world",
               std::to_string(setup.at("world_size").get<int>()), "--cluster", setup.at("cluster"),
               "--seq", std::to_string(setup.at("seq").get<int>()), "--micro-batch",
               std::to_string(setup.at("micro_batch").get<int>()), "--reshard-after-forward",
               setup.at("reshard_after_forward"), "--json", "-"}));
    EXPECT_EQ(single.exit_code, 0) << single.err;
    EXPECT_EQ(row.dump(2) + "\n", single.out);
  }
  EXPECT_EQ(distinct.size(), json.at("reports").size());
}

TEST_F(TableTest, WhatFitsComesFirstByTimeThenTheRestByWhatIsMissing) {
  // 4096 tokens a sequence: short of memory on one of the clusters for some choices.
  const ProcessResult result =
      RunForeshard({"predict", "--model", "llama-2-7b", "--world", "4", "--world", "8", "--seq",
                    "4096", "--cluster", "dgx-a100-40g", "--cluster", "dgx-a100-80g", "--wrap",
                    "block", "--wrap", "whole", "--json", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json table = Json::parse(result.out);
  bool all_fit = true;
  int fitting = 0;
  int64_t last = INT64_MIN;
  for (const Json& row : table.at("reports")) {
    const bool fits = row.at("fit").at("fits");
    if (fits != all_fit) last = INT64_MIN;
    EXPECT_LE(fits, all_fit);
    all_fit = fits;
    fitting += fits ? 1 : 0;
    const int64_t key = fits ? row.at("timing").at("step_ps").get<int64_t>()
                             : -row.at("fit").at("headroom_bytes").get<int64_t>();
    EXPECT_GE(key, last);
    last = key;
  }
  EXPECT_THAT(fitting, testing::AllOf(testing::Gt(0), testing::Lt(8)));
}

TEST_F(TableTest, EqualRowsKeepTheOrderOfTheFlags) {
  // Two names of the same policy: with blocks of one layer, every:1 is block.
  const auto order = [this](const std::string& a, const std::string& b) {
    const ProcessResult result =
        RunForeshard(Table({"--world", "4", "--seq", "16", "--cluster", "dgx-h100", "--wrap", a,
                            "--wrap", b, "--json", "-"}));
    const Json reports = Json::parse(result.out).at("reports");
    return Args{reports[0].at("setup").at("wrap_policy"), reports[1].at("setup").at("wrap_policy")};
  };
  EXPECT_THAT(order("block", "every:1"), ElementsAre("block", "every:1"));
  EXPECT_THAT(order("every:1", "block"), ElementsAre("every:1", "block"));
}

std::string Figure(const Json& bytes) {
  return fmt::format("{:.2f}", bytes.get<double>() / (int64_t{1} << 30));
}

TEST_F(TableTest, TextShowsTheNumbersOfTheJson) {
  Args args = kLlama7b40g;
  args.insert(args.end(), {"--json", Path("t.json")});
  const ProcessResult result = RunForeshard(args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Args lines = Lines(result.out);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  const auto header =
      std::ranges::find_if(lines, [](const auto& line) { return line.starts_with("wrap "); });
  const Json reports = Json::parse(Read("t.json")).at("reports");
  ASSERT_EQ(reports.size(), 4u);
  ASSERT_GT(lines.end() - header, 4);
  for (size_t i = 0; i < reports.size(); ++i) {
    const Json& fit = reports[i].at("fit");
    const Json& t = reports[i].at("timing");
    std::string row =
        fmt::format("{} +{} +{} +", reports[i].at("setup").at("wrap_policy"),
                    reports[i].at("setup").at("units").get<int>(), Figure(fit.at("peak_bytes")));
    if (fit.at("fits").get<bool>()) {
      int64_t gathered = 0;
      for (const Json& term : reports[i].at("peak").at("ledger")) {
        if (term.at("name") == "gathered parameters") gathered = term.at("bytes");
      }
      const double step = t.at("step_ps").get<double>();
      row += fmt::format("{} +{} +{:.3f} +{:.0f} +{:.1f} +{:.1f}", Figure(fit.at("headroom_bytes")),
                         Figure(gathered), step * 1e-9,
                         t.at("tokens_per_second_per_gpu").get<double>(),
                         100 * t.at("mfu").get<double>(),
                         100 * t.at("exposed_communication_ps").get<double>() / step);
    } else {
      row += "does not fit, short by " + Figure(-fit.at("headroom_bytes").get<int64_t>()) + " GiB";
    }
    EXPECT_THAT(*(header + 1 + static_cast<int>(i)), testing::MatchesRegex(row));
  }
}

TEST_F(TableTest, OnlyChoicesThatVaryAreColumns) {
  const std::string one = RunForeshard(Table({"--world", "4", "--seq", "16", "--cluster",
                                              "dgx-h100", "--wrap", "block", "--wrap", "whole"}))
                              .out;
  EXPECT_THAT(one, HasSubstr("\nwrap   units  peak MiB"));
  EXPECT_THAT(one,
              testing::StartsWith("tiny on 4 x H100-SXM5-80GB (dgx-h100, 1 node of 4), 16 tokens"));
  const std::string all = RunForeshard(Table({"--world",
                                              "4",
                                              "--world",
                                              "8",
                                              "--seq",
                                              "16",
                                              "--seq",
                                              "32",
                                              "--cluster",
                                              "dgx-h100",
                                              "--cluster",
                                              "dgx-b200",
                                              "--micro-batch",
                                              "1",
                                              "--micro-batch",
                                              "2",
                                              "--reshard-after-forward",
                                              "false",
                                              "--reshard-after-forward",
                                              "true"}))
                              .out;
  EXPECT_THAT(all, testing::ContainsRegex(
                       "\nwrap +GPUs +cluster +seq +micro-batch +reshard +units +peak MiB"));
}

TEST_F(TableTest, ReplicasMicroBatchesAndRecomputationAreColumns) {
  const std::string text =
      RunForeshard(Table({"--world", "4", "--seq", "16", "--cluster", "dgx-h100", "--replicate",
                          "1", "--replicate", "2", "--micro-batches", "1", "--micro-batches", "2",
                          "--ac", "none", "--ac", "block"}))
          .out;
  EXPECT_THAT(text, testing::ContainsRegex("\nwrap +replicas +micro-batches +recomputed +units"));
  // The model has two blocks.
  for (const char* row :
       {"block +1 +1 +0 ", "block +1 +2 +2 ", "block +2 +1 +2 ", "block +2 +2 +0 "}) {
    EXPECT_THAT(text, testing::ContainsRegex(std::string("\n") + row));
  }
}

TEST_F(TableTest, AssumptionsOfAllRowsStandBelowAndOthersAreAnnounced) {
  const std::string text = RunForeshard(Table({"--world", "4", "--seq", "16", "--cluster",
                                               "dgx-a100-80g", "--cluster", "dgx-h100"}))
                               .out;
  EXPECT_THAT(text, HasSubstr("\n  library: FSDP2 of torch"));
  EXPECT_THAT(text, Not(HasSubstr("sm80")));
  EXPECT_THAT(text, HasSubstr("others differ from row to row"));
  const std::string same = RunForeshard(Table({"--world", "4", "--seq", "16", "--cluster",
                                               "dgx-h100", "--wrap", "block", "--wrap", "whole"}))
                               .out;
  EXPECT_THAT(same, HasSubstr("sm90"));
  EXPECT_THAT(same, Not(HasSubstr("others differ")));
}

TEST_F(TableTest, ExitCodeSaysWhetherAnyChoiceFits) {
  const Args big = {"predict", "--model", "llama-2-70b", "--cluster", "dgx-a100-80g",
                    "--seq",   "512",     "--world",     "2",         "--quiet"};
  Args none = big;
  none.insert(none.end(), {"--world", "4"});
  EXPECT_EQ(RunForeshard(none).exit_code, 5);
  Args some = big;
  some.insert(some.end(), {"--world", "64"});
  EXPECT_EQ(RunForeshard(some).exit_code, 0);
}

TEST_F(TableTest, AValueGivenTwiceIsOneChoice) {
  const Args args = {"--world", "4", "--seq", "16", "--cluster", "dgx-h100", "--json", "-"};
  Args twice = args;
  twice.insert(twice.end(), {"--world", "4", "--wrap", "block", "--wrap", "block"});
  EXPECT_EQ(RunForeshard(Table(twice)).out, RunForeshard(Table(args)).out);
}

TEST_F(TableTest, CsvHasALineForEachChoiceInTheOrderOfTheTable) {
  const ProcessResult result = RunForeshard(
      Table({"--world", "4", "--world", "8", "--seq", "16", "--cluster", "dgx-h100", "--wrap",
             "block", "--wrap", "whole", "--csv", "-", "--json", Path("t.json")}));
  ASSERT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("4 of 4 choices fit"));
  const Args lines = Lines(result.out);
  EXPECT_EQ(lines[0],
            "model,strategy,wrap,world_size,cluster,seq_tokens,micro_batch_sequences,"
            "reshard_after_forward,replicate_size,micro_batches,recomputed_modules,units,fits,"
            "peak_bytes,persistent_bytes,headroom_bytes,capacity_bytes,reserve_bytes,"
            "gathered_parameters_bytes,payload_bytes,sent_bytes,step_ps,compute_busy_ps,"
            "communication_busy_ps,exposed_communication_ps,tokens_per_second_per_gpu,"
            "mfu_fraction");
  const Json reports = Json::parse(Read("t.json")).at("reports");
  ASSERT_EQ(lines.size(), 5u);
  for (size_t i = 0; i < reports.size(); ++i) {
    const Args cells = Cells(lines[i + 1]);
    ASSERT_EQ(cells.size(), 27u);
    EXPECT_EQ(cells[1], reports[i].at("setup").at("strategy"));
    EXPECT_EQ(cells[2], reports[i].at("setup").at("wrap_policy"));
    EXPECT_EQ(cells[3], reports[i].at("setup").at("world_size").dump());
    EXPECT_EQ(cells[13], reports[i].at("fit").at("peak_bytes").dump());
    EXPECT_EQ(cells[14], reports[i].at("fit").at("persistent_bytes").dump());
    EXPECT_EQ(cells[15], reports[i].at("fit").at("headroom_bytes").dump());
    EXPECT_EQ(cells[21], reports[i].at("timing").at("step_ps").dump());
    EXPECT_EQ(std::stod(cells[26]), reports[i].at("timing").at("mfu").get<double>());
  }
}

TEST_F(TableTest, CsvOfOneChoiceIsOneLineAndQuotesWhatNeedsIt) {
  const std::string model = Write("a, \"b\".json", kTinyConfig);
  const ProcessResult result =
      RunForeshard({"predict", "--model", model, "--world", "4", "--seq", "16", "--cluster",
                    "dgx-h100", "--csv", Path("one.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("FITS"));
  const Args lines = Lines(Read("one.csv"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1],
              testing::StartsWith("\"a, \"\"b\"\"\",fsdp2,block,4,dgx-h100,16,1,,1,1,0,3,true,"));
}

TEST_F(TableTest, ARefusedCombinationIsNamed) {
  // A catalogue model has no final norm to wrap under another name.
  ExpectError(Table({"--world", "4", "--world", "8", "--seq", "16", "--cluster", "dgx-h100",
                     "--wrap", "block", "--wrap", "class:Nope"}),
              2, {"error: --wrap class:Nope --world 4: wrap", "Nope"});
}

TEST_F(TableTest, TooManyCombinationsAreRefusedAtOnce) {
  Args args = {"--cluster", "dgx-h100"};
  for (int i = 1; i <= 101; ++i) {
    args.insert(args.end(), {"--world", std::to_string(i + 1), "--seq", std::to_string(i)});
  }
  ExpectError(Table(args), 2, {"--world", "more than 10,000 combinations"});
}

TEST_F(TableTest, OutputsThatExcludeEachOtherOrCannotBeWritten) {
  const Args args = {"--world", "4", "--seq", "16", "--cluster", "dgx-h100"};
  Args both = args;
  both.insert(both.end(), {"--csv", "-", "--json", "-"});
  ExpectError(Table(both), 2, {"--json, --csv: both would be written to stdout"});
  Args nowhere = args;
  nowhere.insert(nowhere.end(), {"--csv", Path("no/such.csv")});
  ExpectError(Table(nowhere), 2, {"--csv", "no/such.csv"});
}

TEST_F(TableTest, OnlyPredictTakesRepeatedFlags) {
  Args args = Plan();
  args.insert(args.end(), {"--wrap", "block", "--wrap", "whole"});
  const ProcessResult result = RunForeshard(args);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--wrap"));
}

}  // namespace
}  // namespace foreshard
