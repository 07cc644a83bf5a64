#include "tools/render/peak_diff_text.h"

#include <fmt/format.h>

#include <cstdlib>

#include "proto/base/units.h"
#include "proto/base/units_text.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

std::string Size(int64_t bytes) { return FormatBytes(Bytes(bytes)); }

std::string Signed(int64_t bytes) {
  if (bytes == 0) return "";
  return (bytes < 0 ? "-" : "+") + Size(std::abs(bytes));
}

std::string Held(int64_t bytes, int64_t count) {
  if (bytes == 0) return "-";
  return count > 1 ? fmt::format("{} in {}", Size(bytes), count) : Size(bytes);
}

std::string Moment(const pb::Report& report) {
  const pb::OpRef& at = report.peak().at();
  std::string text = at.kernel().empty() ? at.kind() : at.kernel();
  if (!at.module().empty()) text += " of " + at.module();
  return text + (at.unit().empty() ? "" : ", unit " + at.unit());
}

std::string Ledger(const pb::Report& a, const pb::Report& b, const PeakDiff& diff, int width) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"", "A", "B", "difference"});
  for (const PeakRow& row : diff.ledger) {
    table.AddRow({row.name, Size(row.bytes_a), Size(row.bytes_b), Signed(row.change())});
  }
  table.AddRow({"peak", Size(a.peak().bytes()), Size(b.peak().bytes()),
                Signed(b.peak().bytes() - a.peak().bytes())});
  return "\nledgers\n" + table.Render(2, width);
}

std::string Buffers(const PeakDiff& diff, int width) {
  if (diff.buffers.empty()) return "\nevery buffer that is alive is alike\n";
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"", "", "A", "B", "difference"});
  for (const PeakRow& row : diff.buffers) {
    table.AddRow({row.name, row.owner, Held(row.bytes_a, row.count_a),
                  Held(row.bytes_b, row.count_b), Signed(row.change())});
  }
  return fmt::format("\nbuffers that differ ({} are alike)\n", Size(diff.alike_bytes)) +
         table.Render(2, width);
}

}  // namespace

std::string RenderPeakDiff(const std::string& name_a, const pb::Report& a,
                           const std::string& name_b, const pb::Report& b, const PeakDiff& diff,
                           int width) {
  std::string text = fmt::format("A: {}\n   peak in {}\nB: {}\n   peak in {}\n", name_a, Moment(a),
                                 name_b, Moment(b));
  return text + Ledger(a, b, diff, width) + Buffers(diff, width);
}

}  // namespace foreshard
