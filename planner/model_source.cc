#include "planner/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "planner/catalogue/catalogue.h"
#include "planner/families/family.h"
#include "planner/families/hf_config.h"
#include "proto/base/file.h"
#include "proto/base/text.h"
#include "proto/io.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

namespace fs = std::filesystem;

// "llama-2-7b" for llama-2-7b.json and for llama-2-7b/config.json.
std::string NameOf(const fs::path& path) {
  const fs::path file = fs::absolute(path).lexically_normal();
  if (file.filename() == "config.json") return file.parent_path().filename().string();
  return file.stem().string();
}

// A model that is a section of its file has that section's name already.
void NameModel(const std::string& name, pb::Model* model) {
  model->set_name(model->name().empty() ? name : fmt::format("{} ({})", name, model->name()));
}

StatusOr<pb::Model> FromHfConfig(const std::string& text, const std::string& origin,
                                 const std::string& name) {
  ASSIGN_OR_RETURN(pb::Model model, ModelFromHfConfig(text, origin));
  NameModel(name, &model);
  return model;
}

StatusOr<pb::Model> LoadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJsonText(text, path));
  if (document.contains("root")) {
    pb::Model model;
    RETURN_IF_ERROR(ParseJson(text, path, model));
    if (model.name().empty()) model.set_name(NameOf(path));
    return model;
  }
  if (document.contains("model_type") || document.contains("text_config")) {
    return FromHfConfig(text, path, NameOf(path));
  }
  return InvalidInput(
      fmt::format("{}: found neither \"model_type\" (a Hugging Face config.json) nor \"root\" (a "
                  "Foreshard model), expected one of them",
                  path));
}

StatusOr<pb::Model> LoadNative(const std::string& path) {
  pb::Model model;
  RETURN_IF_ERROR(ReadMessage(path, model));
  if (!model.has_root())
    return InvalidInput(fmt::format("{}: root: found nothing, expected a module", path));
  if (model.name().empty()) model.set_name(NameOf(path));
  return model;
}

StatusOr<pb::Model> LoadFile(const std::string& path) {
  if (fs::path(path).extension() == ".json") return LoadJson(path);
  return LoadNative(path);
}

// Whether a source that is no catalogue name was meant as a file.
bool LooksLikeFile(const std::string& source) {
  const std::string suffix = fs::path(source).extension().string();
  return source.find('/') != std::string::npos || suffix == ".json" || suffix == ".textproto" ||
         suffix == ".pb";
}

Status NoSuchModel(const std::string& source) {
  if (LooksLikeFile(source)) return NotFound(fmt::format("{}: no such file", source));
  const std::vector<std::string> names = CatalogueModels();
  const std::optional<std::string> nearest = NearestMatch(source, names);
  return NotFound(fmt::format("no file and no built-in model is called \"{}\"{}", source,
                              nearest ? fmt::format("; did you mean {}?", *nearest)
                                      : ", `foreshard list` shows those that are"));
}

}  // namespace

StatusOr<pb::Model> LoadModel(const std::string& source) {
  std::error_code ignored;
  if (fs::is_directory(source, ignored)) {
    return LoadFile((fs::path(source) / "config.json").string());
  }
  if (fs::exists(source, ignored)) return LoadFile(source);
  for (const CatalogueEntry& entry : kCatalogue) {
    if (entry.name == source) return FromHfConfig(std::string(entry.text), source, source);
  }
  return NoSuchModel(source);
}

std::vector<std::string> CatalogueModels() {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : kCatalogue) names.emplace_back(entry.name);
  return names;
}

}  // namespace foreshard
