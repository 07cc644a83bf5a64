#include "tools/render/units_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/fold.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

// Up to 1 % of the longer one.
bool TimesAlike(int64_t a, int64_t b) { return std::abs(a - b) <= std::max(a, b) / 100; }

void AddTotal(const pb::Report& report, const Style& style, TextTable& table) {
  pb::UnitReport total;
  int64_t flight = 0;
  int64_t exposed = 0;
  for (const pb::UnitReport& unit : report.units()) {
    total.set_parameters(total.parameters() + unit.parameters());
    total.set_shard_bytes(total.shard_bytes() + unit.shard_bytes());
    total.set_gathers(total.gathers() + unit.gathers());
    flight += TimeInFlight(unit);
    exposed += TimeExposed(unit);
  }
  table.AddRow({"total", FormatCount(total.parameters()), style.Number(total.shard_bytes()), "",
                fmt::to_string(total.gathers()), TimeText(flight), TimeText(exposed)});
}

}  // namespace

bool UnitsAlike(const pb::UnitReport& a, const pb::UnitReport& b) {
  return a.parameters() == b.parameters() && a.shard_bytes() == b.shard_bytes() &&
         a.gather_bytes() == b.gather_bytes() && a.reduce_bytes() == b.reduce_bytes() &&
         a.gathers() == b.gathers() && a.reductions() == b.reductions() &&
         TimesAlike(a.gather_ps(), b.gather_ps()) && TimesAlike(a.reduce_ps(), b.reduce_ps()) &&
         TimesAlike(a.exposed_gather_ps(), b.exposed_gather_ps()) &&
         TimesAlike(a.exposed_reduce_ps(), b.exposed_reduce_ps()) &&
         TimesAlike(a.all_reduce_ps(), b.all_reduce_ps()) &&
         TimesAlike(a.exposed_all_reduce_ps(), b.exposed_all_reduce_ps());
}

int64_t TimeInFlight(const pb::UnitReport& unit) {
  return unit.gather_ps() + unit.reduce_ps() + unit.all_reduce_ps();
}

int64_t TimeExposed(const pb::UnitReport& unit) {
  return unit.exposed_gather_ps() + unit.exposed_reduce_ps() + unit.exposed_all_reduce_ps();
}

std::string UnitsText(const pb::Report& report, const Style& style) {
  if (report.units().empty()) return "";
  // Parts of a model are small beside a peak.
  const Style mebi = {.width = style.width, .gibi = false};
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
                   Align::kRight, Align::kRight});
  table.AddRow(
      {"unit", "parameters", "MiB shard", "MiB gather", "gathers", "in flight", "exposed"});
  std::vector<std::string> names;
  for (const pb::UnitReport& unit : report.units()) names.push_back(unit.name());
  const auto alike = [&](size_t a, size_t b) {
    return UnitsAlike(report.units(static_cast<int>(a)), report.units(static_cast<int>(b)));
  };
  for (const Fold& fold : FoldNames(names, alike)) {
    const pb::UnitReport& unit = report.units(static_cast<int>(fold.begin));
    table.AddRow({fold.label, FormatCount(unit.parameters()), mebi.Number(unit.shard_bytes()),
                  mebi.Number(unit.gather_bytes()), fmt::to_string(unit.gathers()),
                  TimeText(TimeInFlight(unit)), TimeText(TimeExposed(unit))});
  }
  AddTotal(report, mebi, table);
  return "\nUnits over a steady step (of xN: each), gathers and reductions in flight\n" +
         table.Render(2, style.width);
}

}  // namespace foreshard
