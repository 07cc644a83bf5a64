#include "tools/render/join_json.h"

#include <cctype>
#include <nlohmann/json.hpp>

namespace foreshard {
namespace {

using Json = nlohmann::ordered_json;

Json Lower(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

Json SideJson(const NamedReport& one) {
  const pb::Report& report = one.report;
  const pb::Setup& setup = report.setup();
  const pb::Environment& environment = report.environment();
  const bool measured = report.source() == pb::Report::MEASURED;
  Json side = {{"file", one.name},
               {"source", measured ? "measured" : "predicted"},
               {"tool_version", report.tool_version()},
               {"model", setup.model()},
               {"world_size", setup.world_size()},
               {"rank", report.timeline().rank()},
               {"cluster", setup.cluster()},
               {"device", setup.gpu()}};
  side["backend"] = report.has_environment() ? Json(environment.backend()) : Json();
  side["steps"] = report.has_environment() ? Json(environment.steps()) : Json();
  return side;
}

Json OpJson(const pb::OpRef& op) {
  return {{"program", op.program()}, {"phase", Lower(pb::Phase_Name(op.phase()))},
          {"segment", op.segment()}, {"repetition", op.repetition()},
          {"op", op.op()},           {"kind", op.kind()},
          {"kernel", op.kernel()},   {"unit", op.unit()},
          {"module", op.module()}};
}

Json PlaceJson(const std::optional<pb::OpRef>& op) { return op ? OpJson(*op) : Json(); }

Json CategoriesJson(const std::vector<CategoryPair>& pairs) {
  Json list = Json::array();
  for (const CategoryPair& pair : pairs) {
    list.push_back({{"category", Lower(pb::Category_Name(pair.category))},
                    {"a_bytes", pair.a},
                    {"b_bytes", pair.b},
                    {"change_bytes", pair.b - pair.a}});
  }
  return list;
}

Json MomentJson(const MomentPair& moment) {
  Json json = {{"where", moment.where}, {"moment", moment.moment}};
  json["a_bytes"] = moment.in_a ? Json(moment.a) : Json();
  json["b_bytes"] = moment.in_b ? Json(moment.b) : Json();
  json["change_bytes"] = moment.in_a && moment.in_b ? Json(moment.b - moment.a) : Json();
  json["categories"] = CategoriesJson(moment.categories);
  json["a_at"] = PlaceJson(moment.at_a);
  json["b_at"] = PlaceJson(moment.at_b);
  json["same_place"] = moment.same_place;
  json["within"] = moment.within;
  return json;
}

Json MemoryJson(const MemoryJoin& memory) {
  Json json = {{"ops", memory.ops},
               {"equal", memory.equal},
               {"unequal_changes", memory.unequal_changes},
               {"beyond", memory.beyond},
               {"first_difference", nullptr}};
  if (!memory.first) return json;
  const Parting& first = *memory.first;
  json["first_difference"] = {{"index", first.index},
                              {"op", first.index < 0 ? Json() : OpJson(first.op)},
                              {"moment", first.moment},
                              {"running", CategoriesJson(first.running)},
                              {"changes", CategoriesJson(first.changes)}};
  return json;
}

// null where nothing can be divided by.
Json Ratio(int64_t a, int64_t b) {
  return a > 0 ? Json(static_cast<double>(b) / static_cast<double>(a)) : Json();
}

Json TimeRow(const TimePair& row) {
  return {{"name", row.name},
          {"ops", row.ops},
          {"a_ps", row.a_ps},
          {"b_ps", row.b_ps},
          {"ratio", Ratio(row.a_ps, row.b_ps)},
          {"judged", row.judged},
          {"within", row.within}};
}

Json TimeJson(const TimeJoin& time) {
  Json json = {{"program", time.program}, {"step", TimeRow(time.step)}};
  for (const char* list : {"streams", "kinds", "ops"}) json[list] = Json::array();
  for (const TimePair& row : time.streams) json["streams"].push_back(TimeRow(row));
  for (const TimePair& row : time.kinds) json["kinds"].push_back(TimeRow(row));
  for (const OpTimePair& row : time.ops) {
    json["ops"].push_back({{"op", OpJson(row.op)},
                           {"a_ps", row.a_ps},
                           {"b_ps", row.b_ps},
                           {"ratio", Ratio(row.a_ps, row.b_ps)}});
  }
  return json;
}

}  // namespace

std::string JoinAsJson(const NamedReport& a, const NamedReport& b, const ReportJoin& join) {
  Json json = {{"schema_version", 1}, {"within", join.within}};
  json["verdicts"] = Json::array();
  for (const Verdict& verdict : join.verdicts) {
    json["verdicts"].push_back({{"tolerance", verdict.tolerance},
                                {"limit", verdict.limit},
                                {"judged", verdict.judged},
                                {"within", verdict.within},
                                {"compared", verdict.compared},
                                {"beyond", verdict.beyond}});
  }
  json["a"] = SideJson(a);
  json["b"] = SideJson(b);
  json["programs"] = join.programs;
  json["moments"] = Json::array();
  for (const MomentPair& moment : join.moments) json["moments"].push_back(MomentJson(moment));
  json["memory"] = MemoryJson(join.memory);
  json["time"] = TimeJson(join.time);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace foreshard
