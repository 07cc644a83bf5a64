#include "tools/peak_diff.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "tools/render/names.h"

namespace foreshard {
namespace {

using Json = nlohmann::ordered_json;

PeakRow& Term(std::vector<PeakRow>& rows, const std::string& name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const PeakRow& row) { return row.name == name; });
  if (found != rows.end()) return *found;
  rows.push_back({.name = name, .owner = ""});
  return rows.back();
}

Json RowAsJson(const PeakRow& row) {
  Json json;
  json["name"] = row.name;
  if (!row.owner.empty()) json["owner"] = row.owner;
  if (row.count_a + row.count_b > 0) {
    json["count_a"] = row.count_a;
    json["count_b"] = row.count_b;
  }
  json["bytes_a"] = row.bytes_a;
  json["bytes_b"] = row.bytes_b;
  json["change"] = row.change();
  return json;
}

Json RowsAsJson(const std::vector<PeakRow>& rows) {
  Json json = Json::array();
  for (const PeakRow& row : rows) json.push_back(RowAsJson(row));
  return json;
}

}  // namespace

PeakDiff DiffPeaks(const pb::Report& a, const pb::Report& b) {
  PeakDiff diff;
  for (const pb::LedgerTerm& t : a.peak().ledger()) Term(diff.ledger, t.name()).bytes_a = t.bytes();
  for (const pb::LedgerTerm& t : b.peak().ledger()) Term(diff.ledger, t.name()).bytes_b = t.bytes();
  std::map<std::pair<int, std::string>, PeakRow> groups;
  const auto group = [&](const pb::LiveGroup& live) -> PeakRow& {
    PeakRow& row = groups[{live.category(), live.owner()}];
    row.name = CategoryName(live.category());
    row.owner = live.owner();
    return row;
  };
  for (const pb::LiveGroup& live : a.peak().live()) {
    PeakRow& row = group(live);
    row.count_a = live.count();
    row.bytes_a = live.bytes();
  }
  for (const pb::LiveGroup& live : b.peak().live()) {
    PeakRow& row = group(live);
    row.count_b = live.count();
    row.bytes_b = live.bytes();
  }
  for (auto& [key, row] : groups) {
    if (row.change() == 0) {
      diff.alike_bytes += row.bytes_a;
    } else {
      diff.buffers.push_back(std::move(row));
    }
  }
  std::stable_sort(diff.buffers.begin(), diff.buffers.end(), [](const auto& x, const auto& y) {
    return std::abs(x.change()) > std::abs(y.change());
  });
  return diff;
}

Json PeakDiffAsJson(const std::string& name_a, const std::string& name_b, const PeakDiff& diff) {
  Json json;
  json["schema_version"] = 1;
  json["a"] = name_a;
  json["b"] = name_b;
  json["ledger"] = RowsAsJson(diff.ledger);
  json["buffers"] = RowsAsJson(diff.buffers);
  json["alike_bytes"] = diff.alike_bytes;
  return json;
}

}  // namespace foreshard
