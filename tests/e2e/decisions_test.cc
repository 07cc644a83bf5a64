// Choices from a file, and flags beside it.
#include <nlohmann/json.hpp>

#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

using nlohmann::json;

class DecisionsTest : public CliTest {
 protected:
  Args FromFile(const std::string& file, const Args& more = {}) const {
    Args args = {"plan", "--model", Write("tiny.json", kTinyConfig), "--decisions", file};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // The plan that the command writes.
  json PlanOf(Args args) const {
    args.insert(args.end(), {"-o", Path("made.json")});
    const ProcessResult result = RunForeshard(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(Read("made.json")) : json();
  }
  // A file with the decisions of a plan that every new flag changed.
  std::string Recorded(json* plan) const {
    Args args =
        Plan({"--replicate", "2", "--micro-batches", "2", "--ac", "every:2", "--clip", "1"});
    args.insert(args.end(), {"--no-sync", "--keep-after-backward", "--forward-prefetch", "1"});
    *plan = PlanOf(args);
    return Write("decisions.json", plan->at("decisions").dump());
  }
};

TEST_F(DecisionsTest, OfAPlanMakeItAgain) {
  json plan;
  const std::string file = Recorded(&plan);
  EXPECT_EQ(plan.at("mesh").at("replicate_size"), 2);
  EXPECT_EQ(PlanOf(FromFile(file)), plan);
}

TEST_F(DecisionsTest, FlagsGoBeforeTheFile) {
  json plan;
  const std::string file = Recorded(&plan);
  // The lists of the file name units that are none any more.
  ExpectError(FromFile(file, {"--wrap", "whole"}), 2, {"forward-prefetch", "is not wrapped"});
  const json other = PlanOf(FromFile(file, {"--replicate", "1", "--wrap", "whole", "--ac", "none",
                                            "--forward-prefetch", "0"}))
                         .at("decisions");
  EXPECT_EQ(other.at("replicate_size"), 1);
  EXPECT_EQ(other.at("wrap_policy"), "whole");
  EXPECT_FALSE(other.contains("checkpoint"));
  EXPECT_EQ(other.at("micro_batches"), plan.at("decisions").at("micro_batches"));
  EXPECT_EQ(other.at("seq"), plan.at("decisions").at("seq"));
}

TEST_F(DecisionsTest, ThatMakeNoSenseAreOneLine) {
  ExpectError(FromFile(Path("gone.json")), 3, {"gone.json: no such file"});
  ExpectError(FromFile(Write("d.json", R"({"wrold_size": 4})")), 3, {"d.json", "wrold_size"});
  ExpectError(FromFile(Write("d.textproto", "wrold_size: 4")), 3, {"d.textproto", "wrold_size"});
  ExpectError(FromFile(Write("d.json", R"({"seq": 4})")), 2, {"--world is required"});
  ExpectError(FromFile(Write("d.json", R"({"world_size": 4})")), 2, {"--seq is required"});
  ExpectError(FromFile(Write("d.json", R"({"seq": 4, "world_size": 4, "wrap_policy": "block",
                                           "wrap": [{"modules": ["lm_head"]}]})")),
              2, {"d.json", "not those of wrap_policy \"block\""});
}

TEST_F(DecisionsTest, FlagsRefuseWhatTheyCannotMean) {
  ExpectError(Plan({"--shard-dim", "x"}), 2, {"--shard-dim: found \"x\", expected PATTERN=DIM"});
  ExpectError(Plan({"--reduce-buffers", "0"}), 2, {"--reduce-buffers", "from 1 to"});
  ExpectError(Plan({"--clip", "0"}), 2, {"clip: found norm 0"});
  ExpectError(Plan({"--divide-factor", "0"}), 2, {"divide-factor: found 0"});
  ExpectError(Plan({"--replicate", "3"}), 2, {"replicate: 3 replicas"});
  ExpectError(Plan({"--ac-save-ops", "selective"}), 2, {"no module to apply them to"});
}

}  // namespace
}  // namespace foreshard
