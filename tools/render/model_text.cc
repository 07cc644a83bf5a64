#include "tools/render/model_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "proto/base/units_text.h"
#include "proto/model.pb.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

int64_t Numel(const pb::ModelParameter& parameter) {
  int64_t n = 1;
  for (const int64_t size : parameter.shape()) n *= size;
  return n;
}

// Shared tensors count where they are defined, not where they are used again.
int64_t Count(const pb::Module& module) {
  int64_t n = 0;
  for (const pb::ModelParameter& p : module.params()) n += p.tie().empty() ? Numel(p) : 0;
  for (const pb::Module& child : module.children()) n += Count(child);
  return n;
}

bool HasTie(const pb::Module& module) {
  return std::ranges::any_of(module.params(), [](const auto& p) { return !p.tie().empty(); });
}

std::optional<int64_t> AsNumber(const std::string& name) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), n);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return n;
}

std::string WithoutName(const pb::Module& module) {
  pb::Module copy = module;
  copy.clear_name();
  return copy.SerializeAsString();
}

// How many children from `first` on are one repeated module.
int RunLength(const pb::Module& parent, int first) {
  const std::optional<int64_t> start = AsNumber(parent.children(first).name());
  if (!start) return 1;
  const std::string pattern = WithoutName(parent.children(first));
  int length = 1;
  while (first + length < parent.children_size()) {
    const pb::Module& next = parent.children(first + length);
    if (AsNumber(next.name()) != *start + length || WithoutName(next) != pattern) break;
    ++length;
  }
  return length;
}

std::string ShapeText(const pb::ModelParameter& parameter) {
  std::string text = fmt::format("[{}]", fmt::join(parameter.shape(), ", "));
  if (parameter.frozen()) text += " frozen";
  if (!parameter.tie().empty()) text += " = " + parameter.tie();
  return text;
}

class TreeWriter {
 public:
  explicit TreeWriter(const ModelTextOptions& options) : options_(options) {
    table_.AddRow({"module", "class", "parameters", ""});
  }

  void AddChildren(const pb::Module& module, int depth) {
    if (options_.parameters) AddParameters(module, depth);
    for (int i = 0; i < module.children_size();) {
      const int run = RunLength(module, i);
      AddModule(module.children(i), module.children(i + run - 1).name(), run, depth);
      i += run;
    }
  }

  std::string Text() const { return table_.Render(0, std::numeric_limits<int>::max()); }

 private:
  static std::string Indent(int depth) { return std::string(2 * static_cast<size_t>(depth), ' '); }

  void AddModule(const pb::Module& module, const std::string& last, int run, int depth) {
    const int64_t count = Count(module);
    std::string name = module.name();
    std::string note = HasTie(module) ? "tied" : "";
    if (run > 1) {
      name += fmt::format("..{} x{}", last, run);
      note = "each";
    }
    table_.AddRow(
        {Indent(depth) + name, module.class_(), count > 0 ? FormatCount(count) : "-", note});
    AddChildren(module, depth + 1);
  }

  void AddParameters(const pb::Module& module, int depth) {
    for (const pb::ModelParameter& p : module.params()) {
      table_.AddRow({Indent(depth) + p.name(), ShapeText(p),
                     p.tie().empty() ? FormatCount(Numel(p)) : "-", ""});
    }
  }

  const ModelTextOptions& options_;
  TextTable table_{{Align::kLeft, Align::kLeft, Align::kRight, Align::kLeft}};
};

}  // namespace

std::string RenderModel(const pb::Model& model, const ModelTextOptions& options) {
  TreeWriter writer(options);
  writer.AddChildren(model.root(), 0);
  return fmt::format("{}: {} ({}), {} parameters\n\n{}", model.name(), model.root().class_(),
                     model.family().empty() ? "native" : model.family(),
                     FormatCount(Count(model.root())), writer.Text());
}

}  // namespace foreshard
