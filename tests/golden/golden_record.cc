#include "tests/golden/golden_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace foreshard::golden {

std::string KindLine(const Event& e) {
  return fmt::format("{}{} {} {}", e.phase, e.micro_batch, e.kind, e.unit);
}

std::string Line(const Event& e) {
  std::string line = fmt::format("{}: {} -> {}", KindLine(e), e.elems_in, e.elems_out);
  if (!e.from.empty()) line += fmt::format(" {} to", e.from);
  if (!e.dtype.empty()) line += " " + e.dtype;
  if (e.group != 0) line += fmt::format(" x{}", e.group);
  if (!e.how.empty()) line += ", " + e.how;
  return line;
}

bool IsModelled(const std::string& kind) {
  constexpr std::array<std::string_view, 16> kKinds = {
      "cpu_wait",  "grad_cast",      "grad_pad",        "cast_shard", "all_gather",    "copy_out",
      "reshard",   "rs_copy_in",     "reduce_scatter",  "all_reduce", "grad_finalize", "rs_recycle",
      "recompute", "bucket_copy_in", "bucket_copy_out", "broadcast"};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

bool IsRecorded(const std::string& category) {
  return category != "input" && category != "module_buffer" && category != "workspace";
}

bool IsManaged(const std::string& category) {
  return IsRecorded(category) && category != "activation" && category != "temp" &&
         category != "recompute";
}

LayerIndex FindLayer(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789";
  for (size_t at = path.find('.'); at != std::string_view::npos; at = path.find('.', at + 1)) {
    const size_t end = std::min(path.find_first_not_of(kDigits, at + 1), path.size());
    const bool whole = end == path.size() || path[end] == '.' || path[end] == '+';
    if (whole && end > at + 1) return {at + 1, end - at - 1};
  }
  return {};
}

std::string Line(const UnitLine& unit) {
  std::string line = fmt::format("unit {}: numel {}, shard {}, gathered {}", unit.name, unit.numel,
                                 unit.padded_shard_numel, unit.gathered_numel);
  if (!unit.reshard.empty()) line += ", reshard_after_forward " + unit.reshard;
  return line;
}

std::string Line(const ParameterLine& p) {
  std::string line = fmt::format("  {} {}: shard {} of dim {}, here {}", p.path, p.shape,
                                 p.padded_shard_numel, p.shard_dim, p.local_shape);
  if (!p.shared_with.empty()) line += fmt::format(", also {}", p.shared_with);
  return line;
}

std::string FreeText(const std::string& unit, const std::string& phase, int micro_batch,
                     int steps_ago) {
  std::string text = fmt::format("for the free of {} in {}{}", unit, phase, micro_batch);
  if (steps_ago > 0) text += fmt::format(" {} steps before", steps_ago);
  return text;
}

std::string Line(const FlatUnitLine& u) {
  return fmt::format("unit {}: numel {}, flat {}, shard {} of which {} are padding{}{}", u.name,
                     u.numel, u.flat_numel, u.padded_shard_numel, u.end_padding,
                     u.sharded ? "" : ", not sharded", u.trained ? "" : ", frozen");
}

std::string Line(const FlatParameterLine& p) {
  std::string line =
      fmt::format("  {} {} at {}{}", p.path, p.shape, p.offset, p.trained ? "" : ", frozen");
  if (!p.shared_with.empty()) line += fmt::format(", also {}", p.shared_with);
  return line;
}

Lines SavedLines(const std::vector<SavedTensor>& saved) {
  std::map<std::string, int64_t> counts;
  for (const SavedTensor& t : saved) {
    counts[fmt::format("{} {} {} {} {} bytes", t.module.empty() ? "<root>" : t.module, t.op,
                       t.shape, t.dtype, t.bytes)] += t.count;
  }
  Lines lines;
  for (const auto& [text, count] : counts) lines.push_back(fmt::format("{} (x{})", text, count));
  return lines;
}

}  // namespace foreshard::golden
