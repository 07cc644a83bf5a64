// Times of a steady step, side by side.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "tools/report_join.h"

namespace foreshard {
namespace {

constexpr size_t kOpsShown = 10;
// Kinds below this share of both reports' busy times are shown and not judged: the clock's own
// steps are as long.
constexpr double kSmallest = 0.01;

int64_t Duration(const pb::TimelineOp& op) { return op.end_ps() - op.start_ps(); }

const std::string& KindOf(const pb::TimelineOp& op) {
  return op.kernel().empty() ? op.kind() : op.kernel();
}

void AddTo(TimePair& row, const std::string& name, int64_t a, int64_t b) {
  row.name = name;
  ++row.ops;
  row.a_ps += a;
  row.b_ps += b;
}

int64_t Apart(const OpTimePair& op) { return std::abs(op.b_ps - op.a_ps); }

void Judge(const std::optional<TimeTolerance>& tolerance, TimeJoin& join) {
  if (!tolerance) return;
  double busy_a = 0;
  double busy_b = 0;
  for (const TimePair& row : join.kinds) {
    busy_a += static_cast<double>(row.a_ps);
    busy_b += static_cast<double>(row.b_ps);
  }
  const auto judge = [&](TimePair& row) {
    row.judged = true;
    row.within = tolerance->Allows(row.a_ps, row.b_ps);
  };
  judge(join.step);
  for (TimePair& row : join.kinds) {
    if (static_cast<double>(row.a_ps) >= kSmallest * busy_a ||
        static_cast<double>(row.b_ps) >= kSmallest * busy_b) {
      judge(row);
    }
  }
}

}  // namespace

TimeJoin JoinTime(const pb::Report& a, const pb::Report& b,
                  const std::optional<TimeTolerance>& tolerance) {
  TimeJoin join;
  const pb::Timeline& x = a.timeline();
  const pb::Timeline& y = b.timeline();
  const int program = x.ops(x.ops_size() - 1).program();
  join.program = x.programs(program);
  join.step = {"step", 1, a.timing().step_ps(), b.timing().step_ps()};
  std::map<std::string, TimePair> kinds;
  std::map<int, TimePair> streams;
  for (int i = 0; i < x.ops_size(); ++i) {
    const pb::TimelineOp& op = x.ops(i);
    if (op.program() != program || op.stream() < 0) continue;
    const OpTimePair pair{Refer(x, op), Duration(op), Duration(y.ops(i))};
    AddTo(kinds[KindOf(op)], KindOf(op), pair.a_ps, pair.b_ps);
    AddTo(streams[op.stream()], x.streams(op.stream()), pair.a_ps, pair.b_ps);
    join.ops.push_back(pair);
  }
  for (const auto& [name, row] : kinds) join.kinds.push_back(row);
  for (const auto& [stream, row] : streams) join.streams.push_back(row);
  std::ranges::stable_sort(join.kinds, std::greater(), &TimePair::a_ps);
  std::ranges::stable_sort(join.ops, std::greater(), Apart);
  std::erase_if(join.ops, [](const OpTimePair& op) { return Apart(op) == 0; });
  if (join.ops.size() > kOpsShown) join.ops.resize(kOpsShown);
  Judge(tolerance, join);
  return join;
}

}  // namespace foreshard
