// Strategies side by side, and the flags of their libraries.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class StrategyTest : public CliTest {
 protected:
  Args Compare(const Args& strategies, const Args& more = {}) const {
    Args args = Predict();
    for (const std::string& strategy : strategies) {
      args.insert(args.end(), {"--strategy", strategy});
    }
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // The reports of a table by strategy.
  std::map<std::string, Json> Rows(Args args) const {
    args.insert(args.end(), {"--json", "-", "--quiet"});
    const ProcessResult result = RunForeshard(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::map<std::string, Json> rows;
    const Json table = Json::parse(result.out);
    for (const Json& report : table.at("reports")) {
      EXPECT_TRUE(rows.emplace(report.at("setup").at("strategy"), report).second);
    }
    return rows;
  }
  static Args Lines(const std::string& text) {
    std::istringstream stream(text);
    Args lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(StrategyTest, EveryStrategyIsARowWithMemoryWireAndTime) {
  const Args all = {"fsdp2",        "full_shard",         "shard_grad_op", "no_shard",
                    "hybrid_shard", "hybrid_shard_zero2", "ddp",           "zero1"};
  Args args = Compare(all, {"--replicate", "2", "--json", Path("t.json")});
  const ProcessResult result = RunForeshard(args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Args lines = Lines(result.out);
  const auto header =
      std::ranges::find_if(lines, [](const auto& line) { return line.starts_with("strategy "); });
  ASSERT_NE(header, lines.end());
  EXPECT_THAT(*header, testing::MatchesRegex("strategy +replicas +payload +sent +persistent "
                                             "+transient +peak MiB +headroom +step ms"));
  const Json reports = Json::parse(Read("t.json")).at("reports");
  ASSERT_EQ(reports.size(), all.size());
  std::set<std::string> seen;
  for (size_t i = 0; i < reports.size(); ++i) {
    const Json& report = reports[i];
    int64_t payload = 0;
    int64_t sent = 0;
    for (const Json& total : report.at("collectives")) {
      payload += total.at("payload_bytes").get<int64_t>();
      sent += total.at("wire_bytes").get<int64_t>();
    }
    const auto mib = [](int64_t bytes) {
      return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
    };
    const Json& fit = report.at("fit");
    const int64_t peak = fit.at("peak_bytes");
    const int64_t persistent = fit.at("persistent_bytes");
    const Json& setup = report.at("setup");
    EXPECT_THAT(
        *(header + 1 + static_cast<int>(i)),
        testing::MatchesRegex(fmt::format(
            "{} +{} +{} +{} +{} +{} +{} +{} +{:.3f}", setup.at("strategy").get<std::string>(),
            setup.at("replicate_size").get<int>(), mib(payload), mib(sent), mib(persistent),
            mib(peak - persistent), mib(peak), mib(fit.at("headroom_bytes")),
            report.at("timing").at("step_ps").get<double>() * 1e-9)));
    seen.insert(setup.at("strategy").get<std::string>());
  }
  EXPECT_EQ(seen, std::set<std::string>(all.begin(), all.end()));
}

TEST_F(StrategyTest, ZeroHasItsStagesAsNames) {
  const auto rows = Rows(Compare({"zero3", "zero2"}));
  EXPECT_EQ(rows.count("full_shard"), 1u);
  EXPECT_EQ(rows.count("shard_grad_op"), 1u);
  ExpectError(Compare({"zero"}), 2, {"--strategy: found \"zero\"", "zero1"});
}

TEST_F(StrategyTest, RowsTakeOfTheOptionsWhatTheyHave) {
  const Args mine = {"--replicate",
                     "2",
                     "--use-orig-params",
                     "--reshard-after-forward",
                     "false",
                     "--gradient-as-bucket-view"};
  const auto rows = Rows(Compare({"fsdp2", "full_shard", "hybrid_shard", "ddp"}, mine));
  EXPECT_EQ(rows.at("fsdp2").at("setup").at("replicate_size"), 2);
  EXPECT_EQ(rows.at("fsdp2").at("setup").at("reshard_after_forward"), "false");
  EXPECT_EQ(rows.at("full_shard").at("setup").at("replicate_size"), 1);
  EXPECT_EQ(rows.at("hybrid_shard").at("setup").at("replicate_size"), 2);
  EXPECT_EQ(rows.at("ddp").at("setup").at("replicate_size"), 4);
}

TEST_F(StrategyTest, OneStrategyRefusesWhatItDoesNotHave) {
  ExpectError(Compare({"full_shard"}, {"--reshard-after-forward", "false"}), 2,
              {"reshard-after-forward", "shard_grad_op keeps them"});
  ExpectError(Compare({"fsdp2"}, {"--use-orig-params"}), 2,
              {"use-orig-params: an option of FSDP1", "--strategy full_shard"});
  ExpectError(Compare({"ddp"}, {"--wrap", "class:LlamaDecoderLayer"}), 2,
              {"ddp takes the model as a whole"});
  ExpectError(Compare({"full_shard"}, {"--bucket-mb", "10"}), 2,
              {"bucket-cap-mb: an option of DDP"});
  ExpectError(Compare({"full_shard"}, {"--force-leaf", "Linear"}), 2,
              {"force-leaf", "--wrap size:N"});
}

TEST_F(StrategyTest, ChoicesThatARowDoesNotHaveMakeNoMoreRows) {
  const Args args =
      Compare({"full_shard", "ddp"}, {"--replicate", "1", "--replicate", "2", "--wrap", "block",
                                      "--wrap", "whole", "--json", "-", "--quiet"});
  const ProcessResult result = RunForeshard(args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // full_shard twice, by its wrapping; ddp once.
  EXPECT_EQ(Json::parse(result.out).at("reports").size(), 3u);
}

TEST_F(StrategyTest, HybridsShardWithinANodeUnlessToldOtherwise) {
  // Nodes of 8.
  const auto rows = Rows(Merge(Compare({"hybrid_shard", "full_shard"}), {"--world", "16"}));
  EXPECT_EQ(rows.at("hybrid_shard").at("setup").at("replicate_size"), 2);
  const Json& assumptions = rows.at("hybrid_shard").at("assumptions");
  EXPECT_THAT(assumptions.dump(), HasSubstr("replicas: one per node, as PyTorch takes them"));
  EXPECT_THAT(rows.at("full_shard").at("assumptions").dump(),
              testing::Not(HasSubstr("one per node")));
  const auto alone = Rows(Compare({"hybrid_shard", "full_shard"}));
  EXPECT_EQ(alone.at("hybrid_shard").at("fit").at("peak_bytes"),
            alone.at("full_shard").at("fit").at("peak_bytes"));
}

TEST_F(StrategyTest, DecisionsOfAPlanMakeItAgain) {
  const std::vector<Args> choices = {
      {"--strategy", "full_shard", "--use-orig-params", "--fsdp1-forward-prefetch",
       "--no-limit-all-gathers", "--fsdp1-backward-prefetch", "post"},
      {"--strategy", "hybrid_shard", "--replicate", "2", "--fsdp1-backward-prefetch", "none"},
      {"--strategy", "shard_grad_op", "--wrap", "size:2000|class:Embedding", "--force-leaf",
       "LlamaMLP,LlamaAttention", "--exclude-wrap", "none"},
      {"--strategy", "ddp", "--bucket-cap-mb", "0.01", "--first-bucket-mb", "0.005",
       "--gradient-as-bucket-view"},
      {"--strategy", "zero1"}};
  for (const Args& choice : choices) {
    const auto made = [this](Args args, const std::string& file) {
      args.insert(args.end(), {"-o", Path(file)});
      const ProcessResult result = RunForeshard(args);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return result.exit_code == 0 ? Json::parse(Read(file)) : Json();
    };
    Args args = Plan();
    args.insert(args.end(), choice.begin(), choice.end());
    const Json plan = made(args, "plan.json");
    const std::string file = Write("decisions.json", plan.value("decisions", Json()).dump());
    const Json again = made(
        {"plan", "--model", Write("tiny.json", kTinyConfig), "--decisions", file}, "again.json");
    EXPECT_EQ(again, plan) << choice[1];
  }
}

// The sentence that the tool exists for.
TEST_F(StrategyTest, SevenBillionParametersDoNotFitWithDdpAndDoWithFsdp) {
  const Args model = {"predict", "--model", "llama-2-7b", "--cluster", "dgx-a100-80g",
                      "--world", "8",       "--seq",      "2048",      "--strategy"};
  Args ddp = model;
  ddp.insert(ddp.end(), {"ddp", "--json", Path("ddp.json")});
  const ProcessResult result = RunForeshard(ddp);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.out, HasSubstr("DOES NOT FIT"));
  // Parameters, gradients and two moments in fp32: 16 P, 107.8 GB.
  EXPECT_THAT(result.out, HasSubstr("State of a rank: 100.41 GiB, 16.00 bytes a parameter "
                                    "(parameters 25.10, gradients 25.10"));
  EXPECT_THAT(result.out, HasSubstr("8 ranks hold the same"));
  constexpr int64_t kState = 16 * int64_t{6'738'415'616};
  const Json report = Json::parse(Read("ddp.json"));
  EXPECT_GT(report.at("fit").at("peak_bytes").get<int64_t>(), kState);
  EXPECT_LT(report.at("fit").at("capacity_bytes").get<int64_t>(), kState);
  for (const char* strategy : {"fsdp2", "full_shard"}) {
    Args fsdp = model;
    fsdp.insert(fsdp.end(), {strategy, "--json", Path("fsdp.json")});
    const ProcessResult fitting = RunForeshard(fsdp);
    EXPECT_EQ(fitting.exit_code, 0);
    EXPECT_THAT(fitting.out, HasSubstr("State of a rank: 12.55 GiB, 2.00 bytes a parameter"));
    EXPECT_THAT(fitting.out, HasSubstr("8 ranks share 16.00 bytes a parameter"));
    const Json fits = Json::parse(Read("fsdp.json"));
    // An eighth of the state, and little else between steps.
    EXPECT_LT(fits.at("fit").at("persistent_bytes").get<int64_t>(), kState / 8);
  }
}

}  // namespace
}  // namespace foreshard
