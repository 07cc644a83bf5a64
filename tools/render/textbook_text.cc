#include "tools/render/textbook_text.h"

#include <fmt/format.h>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

std::string Formulas(const pb::Textbook& t, const Style& style) {
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight});
  const auto add = [&](const char* what, const std::string& formula, int64_t bytes) {
    table.AddRow({what, formula, style.Number(bytes)});
  };
  table.AddRow({"", "", style.unit()});
  add("replicated: parameters, gradients, state", "16 P", t.replicated_bytes());
  add("sharded", "16 P / N", t.persistent_bytes());
  add("gathered on top", fmt::format("2 U (1 + {})", t.gathered_ahead()), t.transient_bytes());
  add("payload of a step", "3 x 2 P", t.payload_bytes());
  add("  sent by a rank in a ring", "x (N - 1) / N", t.ring_payload_bytes());
  add("payload of replicas", "2 x 2 P", t.all_reduce_bytes());
  add("  sent by a rank in a ring", "x (N - 1) / N", t.ring_all_reduce_bytes());
  return table.Render(2, style.width);
}

std::string Difference(const pb::Textbook& t, const Style& style) {
  TextTable table({Align::kLeft, Align::kRight});
  table.AddRow({"", style.unit()});
  table.AddRow({"textbook: sharded + gathered on top",
                style.Number(t.persistent_bytes() + t.transient_bytes())});
  for (const pb::LedgerTerm& term : t.difference()) {
    table.AddRow({(term.bytes() < 0 ? "- " : "+ ") + term.name(), style.Number(term.bytes())});
  }
  table.AddRow(
      {"simulated: peak of what the sharding manages", style.Number(t.managed_peak_bytes())});
  return "\nFrom the textbook to the simulated figure\n" + table.Render(2, style.width);
}

}  // namespace

std::string TextbookText(const pb::Textbook& t, const Style& style) {
  return "\n" +
         Wrapped(fmt::format("Textbook, 16-bit reduce: P {} parameters, U {} in the largest unit, "
                             "N {} rank{}, {} unit{} gathered ahead",
                             FormatCount(t.parameters()), FormatCount(t.unit_parameters()),
                             t.ranks(), t.ranks() == 1 ? "" : "s", t.gathered_ahead(),
                             t.gathered_ahead() == 1 ? "" : "s"),
                 "", style.width) +
         Formulas(t, style) + Difference(t, style);
}

}  // namespace foreshard
