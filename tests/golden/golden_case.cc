#include "tests/golden/golden_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "planner/families/family.h"
#include "planner/families/neutral_tree.h"
#include "tests/golden/golden_request.h"

namespace foreshard::golden {

namespace fs = std::filesystem;

std::vector<fs::path> CasesIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;  // a missing folder has no cases, and that is reported as such
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

StatusOr<json> ReadDocument(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  json document = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return InvalidInput(path.string() + ": not JSON");
  return document;
}

bool IsEndToEnd(const json& document) { return document.contains("spec"); }

bool IsSmall(const json& document) { return document.contains("case"); }

std::string WhyNotCompared(const json& document) {
  if (!IsEndToEnd(document) && !IsSmall(document)) return "neither a small trace nor a whole model";
  if (IsSmall(document)) {
    const json& options = document.at("case");
    if (options.at("kind") != "train") return fmt::format("kind {}", options.at("kind").dump());
  } else if (document.at("spec").value("attn", "") != "cuda_flash") {
    // Other attention was recorded as CPU operators, which no profile of a whole model describes.
    return fmt::format("attention {}", document.at("spec").value("attn", "none"));
  }
  if (!document.contains("units")) return "a file without units: it has run times only";
  return "";
}

StatusOr<pb::Model> ModelOf(const json& document) {
  const std::string name = document.value("name", "case");
  if (!IsEndToEnd(document)) {
    return ModelFromNeutralTree(document.at("case").at("model").dump(), name);
  }
  return ModelFromHfConfig(ConfigOf(document.at("spec")).dump(), name);
}

PlanRequest RequestOf(const json& document) {
  return IsEndToEnd(document) ? SpecRequest(document) : CaseRequest(document);
}

int RankOf(const json& document) {
  return document.at(IsEndToEnd(document) ? "spec" : "case").value("rank", 0);
}

}  // namespace foreshard::golden
