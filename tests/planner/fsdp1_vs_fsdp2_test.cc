// The table of docs/fsdp1-vs-fsdp2.md, recomputed from the plans that it is about: Llama-2-7B on
// eight ranks, blocks and root, fsdp2 beside full_shard.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tests/planner/plan_helpers.h"

namespace foreshard {
namespace {

struct Case {
  pb::Plan plan;
  pb::Report report;
};

pb::Plan PlanFor(const std::string& strategy, int world, bool use_orig_params) {
  const auto model = LoadModel(FORESHARD_SOURCE_DIR "/tests/data/models/llama-2-7b.json");
  PlanRequest request;
  request.world_size = world;
  request.seq = 2048;
  request.strategy = strategy;
  request.fsdp1.use_orig_params = use_orig_params;
  return PlanOf(model.value(), request);
}

Case Make(const std::string& strategy) {
  Case made{PlanFor(strategy, 8, false), {}};
  made.report = ReportOf(made.plan);
  return made;
}

// ---- what rows count

int64_t Padding(const pb::Plan& plan) {
  int64_t padding = 0;
  for (const pb::Unit& unit : plan.units()) padding += unit.gathered_numel() - unit.numel();
  return padding;
}

int64_t LargestBuffer(const pb::Plan& plan, pb::Category category) {
  int64_t largest = 0;
  for (const pb::Buffer& b : plan.buffers()) {
    if (b.category() == category) largest = std::max(largest, b.bytes());
  }
  return largest;
}

// Buffers of a category that the first block has.
int64_t OfFirstBlock(const pb::Plan& plan, pb::Category category) {
  std::set<int> seen;
  ForEachStepOp(plan, [&](const pb::Op& op, int) {
    if (op.phase() != pb::FORWARD) return;
    for (const int b : op.allocs()) {
      const pb::Buffer& buffer = plan.buffers(b);
      const bool in_block =
          buffer.has_unit() && plan.units(buffer.unit()).name() == "model.layers.0";
      if (in_block && buffer.category() == category) seen.insert(b);
    }
  });
  return static_cast<int64_t>(seen.size());
}

int64_t ShardBuffers(const pb::Plan& plan) {
  std::set<int> buffers;
  for (const pb::Parameter& p : plan.parameters()) buffers.insert(p.sharded_buffer());
  return static_cast<int64_t>(buffers.size());
}

int64_t CountOps(const pb::Plan& plan, const std::function<bool(const pb::Op&)>& counts) {
  int64_t count = 0;
  ForEachStepOp(plan, [&](const pb::Op& op, int) { count += counts(op) ? 1 : 0; });
  return count;
}

int64_t HostWaits(const pb::Plan& plan) {
  int64_t waits = 0;
  ForEachStepOp(
      plan, [&](const pb::Op& op, int) { waits += op.event_waits_size() + op.host_waits_size(); });
  return waits;
}

int64_t RecordedOn(const pb::Plan& plan) {
  return std::ranges::count_if(plan.buffers(),
                               [](const pb::Buffer& b) { return b.recorded_on_size() > 0; });
}

int64_t Sent(const Case& c) {
  int64_t bytes = 0;
  for (const pb::CollectiveTotal& total : c.report.collectives()) bytes += total.wire_bytes();
  return bytes;
}

int64_t Managed(const Case& c, const char* program, pb::Phase phase) {
  return PhaseOf(c.report, program, phase).managed_peak_bytes();
}

// ---- the rows

using Cell = std::function<std::string(const Case&)>;
std::string Text(int64_t number) { return FormatCount(number); }

// By the words of the table's first column.
std::map<std::string, Cell> Rows() {
  const auto ops = [](auto counts) {
    return [counts](const Case& c) { return Text(CountOps(c.plan, counts)); };
  };
  const auto largest = [](pb::Category category) {
    return [category](const Case& c) { return Text(LargestBuffer(c.plan, category)); };
  };
  const auto managed = [](const char* program, pb::Phase phase) {
    return [=](const Case& c) { return Text(Managed(c, program, phase)); };
  };
  return {
      {"units", [](const Case& c) { return Text(c.plan.units_size()); }},
      {"tensors that are sharded", [](const Case& c) { return Text(ShardBuffers(c.plan)); }},
      {"padding elements, 8 ranks", [](const Case& c) { return Text(Padding(c.plan)); }},
      {"tensors a block gathers into",
       [](const Case& c) { return Text(OfFirstBlock(c.plan, pb::UNSHARDED_PARAM)); }},
      {"largest gather output beside them", largest(pb::AG_OUTPUT)},
      {"largest unsharded gradient", largest(pb::UNSHARDED_GRAD)},
      {"largest input of a reduction", largest(pb::RS_INPUT)},
      {"gathers of a step", ops([](const pb::Op& op) { return op.has_all_gather(); })},
      {"reductions of a step", ops([](const pb::Op& op) { return op.has_reduce_scatter(); })},
      {"copies into and out of gathers",
       ops([](const pb::Op& op) { return op.has_gather_copy_in() || op.has_copy_out(); })},
      {"joins of gradients before a reduction",
       ops([](const pb::Op& op) { return op.has_concat_gradients(); })},
      {"bytes sent by a rank", [](const Case& c) { return Text(Sent(c)); }},
      {"bytes between steps",
       [](const Case& c) { return Text(c.report.fit().persistent_bytes()); }},
      {"managed peak, first forward", managed("first", pb::FORWARD)},
      {"managed peak, forward", managed("steady", pb::FORWARD)},
      {"managed peak, backward", managed("steady", pb::BACKWARD)},
      {"peak of all", [](const Case& c) { return Text(c.report.fit().peak_bytes()); }},
      {"waits of the host in a step", [](const Case& c) { return Text(HostWaits(c.plan)); }},
      {"buffers recorded on other streams", [](const Case& c) { return Text(RecordedOn(c.plan)); }},
      {"exposed communication, us",
       [](const Case& c) {
         return Text(c.report.timing().exposed_communication_ps() / 1'000'000);
       }},
      {"step, us", [](const Case& c) { return Text(c.report.timing().step_ps() / 1'000'000); }},
  };
}

// The document's rows: first column, then the cells of fsdp2 and full_shard.
struct DocRow {
  std::string name, fsdp2, full_shard;
};

std::vector<DocRow> DocRows() {
  std::ifstream file(FORESHARD_SOURCE_DIR "/docs/fsdp1-vs-fsdp2.md");
  std::vector<DocRow> rows;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    size_t at = 0;
    for (size_t bar = line.find('|', 1); line.starts_with("|") && bar != std::string::npos;
         bar = line.find('|', at)) {
      std::string cell = line.substr(at + (at == 0 ? 1 : 0), bar - at - (at == 0 ? 1 : 0));
      cell.erase(0, cell.find_first_not_of(' '));
      cell.erase(cell.find_last_not_of(' ') + 1);
      cells.push_back(cell);
      at = bar + 1;
    }
    if (cells.size() >= 3 && cells[1] != "fsdp2" && !cells[1].starts_with("-")) {
      rows.push_back({cells[0], cells[1], cells[2]});
    }
  }
  return rows;
}

TEST(Fsdp1VersusFsdp2, EveryRowOfTheTableIsWhatThePlansSay) {
  const Case fsdp2 = Make("fsdp2");
  const Case full_shard = Make("full_shard");
  std::map<std::string, Cell> rows = Rows();
  for (const DocRow& row : DocRows()) {
    const auto known = rows.find(row.name);
    ASSERT_NE(known, rows.end()) << row.name;
    EXPECT_EQ(row.fsdp2, known->second(fsdp2)) << row.name;
    EXPECT_EQ(row.full_shard, known->second(full_shard)) << row.name;
    rows.erase(known);
  }
  for (const auto& [name, cell] : rows) {
    ADD_FAILURE() << "not in the table: | " << name << " | " << cell(fsdp2) << " | "
                  << cell(full_shard) << " |";
  }
}

// Padding where 24 ranks do not divide the rows: each parameter's with fsdp2, each unit's with
// FSDP1.
TEST(Fsdp1VersusFsdp2, PaddingOfTwentyFourRanks) {
  std::ifstream file(FORESHARD_SOURCE_DIR "/docs/fsdp1-vs-fsdp2.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string sentence = fmt::format("On 24 ranks fsdp2 pads {} elements, full_shard {}",
                                           Text(Padding(PlanFor("fsdp2", 24, false))),
                                           Text(Padding(PlanFor("full_shard", 24, false))));
  EXPECT_NE(text.find(sentence), std::string::npos) << sentence;
}

}  // namespace
}  // namespace foreshard
