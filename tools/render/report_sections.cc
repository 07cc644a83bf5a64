#include "tools/render/report_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/names.h"
#include "tools/render/text_table.h"

namespace foreshard {

using Align = TextTable::Align;

// Ranks fill nodes in order, so only the last can hold fewer.
std::string NodesText(const pb::Setup& setup) {
  if (setup.ranks_per_node().empty()) return "";
  const int nodes = setup.ranks_per_node_size();
  const int full = setup.ranks_per_node(0);
  const int last = setup.ranks_per_node(nodes - 1);
  if (full == last) return fmt::format("{} node{} of {}", nodes, nodes == 1 ? "" : "s", full);
  if (nodes == 2) return fmt::format("2 nodes: {} + {}", full, last);
  return fmt::format("{} nodes: {} x {} + {}", nodes, nodes - 1, full, last);
}

std::string HeadlineText(const pb::Report& report, const Style& style) {
  const pb::Setup& s = report.setup();
  const char* source = report.source() == pb::Report::MEASURED ? "measured" : "predicted";
  const std::string nodes = NodesText(s);
  const std::string rank = s.rank() > 0 ? fmt::format(", rank {}", s.rank()) : "";
  std::string text =
      Wrapped(fmt::format("{} on {} x {} ({}{}{}), {}{}", s.model(), s.world_size(), s.gpu(),
                          s.cluster(), nodes.empty() ? "" : ", ", nodes, source, rank),
              "", style.width);
  const std::string& asked = s.reshard_after_forward();
  const std::string times = s.micro_batches() > 1 ? fmt::format("{} x ", s.micro_batches()) : "";
  const std::string replicas =
      s.replicate_size() > 1 ? fmt::format(", {} replicas", s.replicate_size()) : "";
  text +=
      Wrapped(fmt::format("{} parameters in {} unit{} (wrap {}{}{}), {}micro-batch {} x {} tokens",
                          FormatCount(s.parameters()), s.units(), s.units() == 1 ? "" : "s",
                          s.wrap_policy().empty() ? "-" : s.wrap_policy(),
                          asked.empty() ? "" : ", reshard after forward " + asked, replicas, times,
                          s.micro_batch(), s.seq()),
              "", style.width);
  return text;
}

std::string FitText(const pb::Fit& fit, const Style& style) {
  const std::string room = fit.fits() ? fmt::format("headroom {} GiB", Gib(fit.headroom_bytes()))
                                      : fmt::format("short by {} GiB", Gib(-fit.headroom_bytes()));
  return "\n" + Wrapped(fmt::format("{}: {}; peak {} {} allocated + {} GiB reserve of {} GiB",
                                    fit.fits() ? "FITS" : "DOES NOT FIT", room,
                                    style.Number(fit.peak_bytes()), style.unit(),
                                    Gib(fit.reserve_bytes()), Gib(fit.capacity_bytes())),
                        "", style.width);
}

namespace {

struct State {
  int64_t parameters = 0, gradients = 0, optimizer = 0, buckets = 0;
};

std::optional<State> StateOf(const pb::Report& report) {
  const pb::PhaseMemory* backward = nullptr;  // of the last micro-batch
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (phase.program() == "steady" && phase.phase() == pb::BACKWARD) backward = &phase;
  }
  if (backward == nullptr) return std::nullopt;
  State state;
  for (const pb::CategoryBytes& entry : backward->end_by_category()) {
    const pb::Category category = entry.category();
    if (category == pb::SHARDED_PARAM) state.parameters += entry.bytes();
    if (category == pb::OPTIMIZER_STATE) state.optimizer += entry.bytes();
    if (category == pb::SHARDED_GRAD || category == pb::UNSHARDED_GRAD) {
      state.gradients += entry.bytes();
    }
    if (category == pb::BUCKET) state.buckets += entry.bytes();
  }
  // Gradients that are views of buckets are nowhere else.
  if (state.gradients == 0) state.gradients = state.buckets;
  return state;
}

// Who has the rest of the state, or the same.
std::string HoldersText(const pb::Setup& s, double bytes_a_parameter) {
  const int replicas = std::max(1, s.replicate_size());
  const int shards = s.world_size() / replicas;
  if (shards > 1) {
    return fmt::format("{} ranks share {:.2f} bytes a parameter", shards,
                       bytes_a_parameter * shards);
  }
  if (replicas == 1) return "nobody to share it with";
  if (s.strategy() == "zero1") {
    return fmt::format("{} ranks hold the same but for the optimizer's, which they share",
                       replicas);
  }
  return fmt::format("{} ranks hold the same", replicas);
}

}  // namespace

std::string StateText(const pb::Report& report, const Style& style) {
  const std::optional<State> state = StateOf(report);
  if (!state || report.setup().parameters() == 0 || state->parameters == 0) return "";
  const int64_t bytes = state->parameters + state->gradients + state->optimizer;
  const double each = static_cast<double>(bytes) / static_cast<double>(report.setup().parameters());
  return Wrapped(
      fmt::format("State of a rank: {} {}, {:.2f} bytes a parameter (parameters {}, gradients {}, "
                  "optimizer {}); {}",
                  style.Number(bytes), style.unit(), each, style.Number(state->parameters),
                  style.Number(state->gradients), style.Number(state->optimizer),
                  HoldersText(report.setup(), each)),
      "", style.width);
}

std::string HostText(const pb::HostMemory& host, const Style& style) {
  std::string parts;
  for (const pb::CategoryBytes& entry : host.peak_by_category()) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", CategoryName(entry.category()),
                         style.Number(entry.bytes()));
  }
  return "\n" + Wrapped(fmt::format("On the host, page-locked, per rank: {} {} ({})",
                                    style.Number(host.peak_bytes()), style.unit(), parts),
                        "", style.width);
}

std::string LedgerText(const pb::Peak& peak, const Style& style) {
  constexpr int kBar = 30;
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow({"", style.unit(), "%", ""});
  for (const pb::LedgerTerm& term : peak.ledger()) {
    table.AddRow({term.name(), style.Number(term.bytes()),
                  Percent(static_cast<double>(term.bytes()), static_cast<double>(peak.bytes())),
                  Bar(term.bytes(), peak.bytes(), kBar)});
  }
  table.AddRow({"total", style.Number(peak.bytes()), "", ""});
  return "\nWhat the peak is made of\n" + table.Render(2, style.width);
}

std::string PlaceText(const pb::OpRef& op) {
  std::string text =
      fmt::format("program {}, {}, {}", op.program(), PhaseName(op.phase()), op.kind());
  if (!op.kernel().empty()) text += " " + op.kernel();
  if (!op.module().empty()) text += ", module " + op.module();
  if (!op.unit().empty() && !op.module().starts_with(op.unit())) text += ", unit " + op.unit();
  return text + fmt::format(" (op {} of segment {})", op.op(), op.segment());
}

std::string LiveText(const pb::Peak& peak, const Style& style) {
  constexpr int kShown = 6;
  std::string text = "\n" + Wrapped(PlaceText(peak.at()), "Peak at ", style.width);
  if (peak.live().empty()) return text;
  TextTable table({Align::kRight, Align::kRight, Align::kLeft, Align::kLeft});
  table.AddRow({style.unit(), "buffers", "largest groups alive then", "of"});
  for (int i = 0; i < std::min(kShown, peak.live_size()); ++i) {
    const pb::LiveGroup& group = peak.live(i);
    table.AddRow({style.Number(group.bytes()), FormatCount(group.count()),
                  CategoryName(group.category()), group.owner()});
  }
  return text + table.Render(2, style.width);
}

// The steady program only: the first step differs by the optimizer's state (in the JSON).
std::string PhasesText(const pb::Report& report, const Style& style) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"phase", "start", "end", "peak", "of it managed by sharding"});
  bool any = false;
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (phase.program() != "steady") continue;
    any = true;
    table.AddRow({PhaseName(phase.phase(), phase.micro_batch()), style.Number(phase.start_bytes()),
                  style.Number(phase.end_bytes()), style.Number(phase.peak_bytes()),
                  style.Number(phase.managed_peak_bytes())});
  }
  if (!any) return "";
  return "\nMemory of a steady step, " + style.unit() + "\n" + table.Render(2, style.width);
}

std::string TimingText(const pb::Report& report, const Style& style) {
  const pb::Timing& t = report.timing();
  const bool is_measured = report.source() == pb::Report::MEASURED;
  const char* trust = is_measured      ? "measured, the last step"
                      : t.calibrated() ? "calibrated"
                                       : "first order, not calibrated";
  std::string text = fmt::format("\nStep time {} ({})\n", TimeText(t.step_ps()), trust);
  std::string phases;
  for (const pb::PhaseTime& phase : t.phases()) {
    phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", PhaseName(phase.phase()),
                          TimeText(phase.duration_ps()));
  }
  if (!phases.empty()) text += Wrapped(phases, "  ", style.width);
  text +=
      Wrapped(fmt::format("compute busy {}, communication busy {}, exposed communication {} ({} % "
                          "of the step), host busy {}",
                          TimeText(t.compute_busy_ps()), TimeText(t.communication_busy_ps()),
                          TimeText(t.exposed_communication_ps()),
                          Percent(static_cast<double>(t.exposed_communication_ps()),
                                  static_cast<double>(t.step_ps())),
                          TimeText(t.host_busy_ps())),
              "  ", style.width);
  std::string rate = fmt::format("{:.0f} tokens/s per {}", t.tokens_per_second_per_gpu(),
                                 is_measured ? "rank" : "GPU");
  if (t.peak_flops_per_second() > 0) {
    rate += fmt::format(", MFU {:.1f} % of {:.0f} TFLOP/s", 100 * t.mfu(),
                        t.peak_flops_per_second() * 1e-12);
  }
  return text + Wrapped(rate, "  ", style.width);
}

std::string CollectivesText(const pb::Report& report, const Style& style) {
  if (report.collectives().empty()) return "";
  TextTable table({Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight, Align::kRight,
                   Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"collective", "phase", "group", "ranks", "count", style.unit() + " in",
                style.unit() + " out", style.unit() + " sent"});
  for (const pb::CollectiveTotal& c : report.collectives()) {
    table.AddRow({c.kind(), PhaseName(c.phase()), c.group(), fmt::to_string(c.ranks()),
                  FormatCount(c.count()), style.Number(c.input_bytes()),
                  style.Number(c.output_bytes()), style.Number(c.wire_bytes())});
  }
  return "\nCollectives of one step, per GPU\n" + table.Render(2, style.width);
}

std::string AssumptionsText(const pb::Report& report, const Style& style) {
  if (report.assumptions().empty()) return "";
  std::string text = "\nAssumptions\n";
  for (const std::string& one : report.assumptions()) text += Wrapped(one, "  ", style.width);
  return text;
}

}  // namespace foreshard
