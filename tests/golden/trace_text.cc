#include "tests/golden/trace_text.h"

namespace foreshard::golden {

using nlohmann::json;

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

std::string DTypeText(const json& name) { return Replace(name.get<std::string>(), "torch.", ""); }

std::string TextOr(const json& value, const std::string& otherwise) {
  return value.is_null() ? otherwise : value.get<std::string>();
}

ParameterLine ParameterOf(const json& row, const std::string& layer) {
  ParameterLine line;
  line.path = Replace(row.at("name"), "{i}", layer);
  line.shape = row.at("shape").get<std::vector<int64_t>>();
  line.local_shape = row.at("local_shape").get<std::vector<int64_t>>();
  line.padded_shard_numel = row.at("padded_shard_numel");
  line.shard_dim = row.value("shard_dim", 0);
  if (row.contains("shared_with") && !row["shared_with"].is_null()) {
    line.shared_with = row["shared_with"].get<std::vector<std::string>>();
  }
  return line;
}

std::string HolderText(const std::string& category, const std::string& unit) {
  const bool stays = category == "sharded_param" || category == "optimizer_state";
  return stays || unit.empty() ? category : category + " " + unit;
}

bool KeepsWholeGradients(const json& document) {
  if (!document.contains("case") || document["case"].at("fsdp") != 1) return false;
  if (document.at("units").at(0).value("sharding_strategy", "") != "NO_SHARD") return false;
  return document["case"].at("microbatches").value("n", 1) > 1;
}

std::string WholeGradientText(const std::string& category) {
  const bool is_form = category == "rs_input" || category == "sharded_grad";
  return is_form ? "unsharded_grad" : category;
}

}  // namespace foreshard::golden
