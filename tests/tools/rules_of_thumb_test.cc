// docs/rules-of-thumb.md against the plans that its numbers come from.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/model_source.h"
#include "proto/base/file.h"
#include "proto/cluster.pb.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"
#include "tests/planner/plan_helpers.h"
#include "tests/tools/equal_blocks.h"
#include "tools/textbook.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

std::string Page() {
  return ReadFile(std::string(FORESHARD_SOURCE_DIR) + "/docs/rules-of-thumb.md").value();
}

// "-1,234,567".
std::string Commas(int64_t value) {
  if (value < 0) return "-" + Commas(-value);
  std::string text = std::to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

pb::Report LlamaOnEightA100(const std::string& wrap) {
  const pb::Cluster cluster = LoadCluster("dgx-a100-40g").value();
  PlanRequest request;
  request.world_size = 8;
  request.seq = 2048;
  request.wrap = wrap;
  request.arch = cluster.gpu().arch();
  const pb::Plan plan = PlanOf(LoadModel("llama-2-7b").value(), request);
  pb::Report report = Simulate(plan, cluster).value();
  FillTextbook(plan, report);
  return report;
}

TEST(RulesOfThumb, TheTableOfWrapsIsWhatPredictSays) {
  const std::string page = Page();
  int64_t last = 0;
  for (const char* wrap : {"block", "every:2", "every:4", "whole"}) {
    const pb::Report report = LlamaOnEightA100(wrap);
    const pb::Textbook& t = report.textbook();
    EXPECT_THAT(page,
                HasSubstr(fmt::format(
                    "| {} | {} | {} | {} | {} | {} | {} | {} |\n", wrap, report.setup().units(),
                    Commas(t.unit_parameters()), Commas(t.persistent_bytes() + t.transient_bytes()),
                    Commas(t.managed_peak_bytes()), Commas(report.peak().bytes()),
                    Commas(report.fit().headroom_bytes()), report.fit().fits() ? "yes" : "no")));
    EXPECT_GT(t.managed_peak_bytes(), last) << "the coarser the units, the higher the peak";
    last = t.managed_peak_bytes();
  }
}

TEST(RulesOfThumb, TheDifferenceOfTheFirstRow) {
  const std::string page = Page();
  const pb::Report report = LlamaOnEightA100("block");
  for (const pb::LedgerTerm& term : report.textbook().difference()) {
    EXPECT_THAT(page, HasSubstr(fmt::format("| {} | {} |\n", term.name(), Commas(term.bytes()))));
  }
}

// What a phase holds of the sharding beyond what lives between steps, in units of 2 U bytes.
std::string TransientInUnits(const std::string& torch, pb::Phase phase) {
  PlanRequest request = EqualBlocksRequest("block");
  request.torch = torch;
  const pb::Plan plan = PlanOf(EqualBlocks(), request);
  const pb::Report report = ReportOf(plan);
  const pb::PhaseMemory& memory = PhaseOf(report, "steady", phase);
  int64_t transient = 0;
  for (const pb::CategoryBytes& c : memory.managed_peak_by_category()) {
    const bool persists = c.category() == pb::SHARDED_PARAM || c.category() == pb::SHARDED_GRAD ||
                          c.category() == pb::OPTIMIZER_STATE;
    if (!persists) transient += c.bytes();
  }
  return fmt::format("{:.3g} U", static_cast<double>(transient) / (2.0 * 218'750'000));
}

TEST(RulesOfThumb, TransientBytesOfEqualBlocks) {
  const std::string page = Page();
  for (const char* torch : {"2.14", "2.15"}) {
    EXPECT_THAT(page, HasSubstr(fmt::format("| {} | {} | {} |\n", torch,
                                            TransientInUnits(torch, pb::FORWARD),
                                            TransientInUnits(torch, pb::BACKWARD))));
  }
}

// Elements of each collective of a step, in bytes of 16 bits.
TEST(RulesOfThumb, FourParametersOnTheWire) {
  const pb::Report report = ReportOf(SevenBillion("block"));
  int64_t payload = 0;
  for (const pb::CollectiveTotal& total : report.collectives()) {
    payload += std::max(total.input_bytes(), total.output_bytes());
  }
  EXPECT_EQ(payload, 4 * 2 * int64_t{7'000'000'000});
  EXPECT_THAT(Page(), HasSubstr(Commas(payload)));
}

}  // namespace
}  // namespace foreshard
