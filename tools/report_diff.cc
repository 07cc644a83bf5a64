#include "tools/report_diff.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <map>
#include <utility>

#include "proto/report.pb.h"
#include "tools/render/fold.h"
#include "tools/render/names.h"
#include "tools/render/report_sections.h"
#include "tools/render/units_text.h"

namespace foreshard {
namespace {

namespace gp = google::protobuf;
using gp::FieldDescriptor;
using Json = nlohmann::ordered_json;

FigureKind KindOf(const FieldDescriptor& field) {
  const std::string& name = field.name();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return name == "mfu" ? FigureKind::kShare : FigureKind::kNumber;
  }
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_INT64 &&
      field.cpp_type() != FieldDescriptor::CPPTYPE_INT32) {
    return FigureKind::kText;
  }
  if (name == "bytes" || name.ends_with("_bytes")) return FigureKind::kBytes;
  return name.ends_with("_ps") ? FigureKind::kTime : FigureKind::kCount;
}

// "exposed_gather_ps" -> "exposed gather".
std::string Words(std::string name) {
  for (const char* unit : {"_bytes", "_ps"}) {
    if (name.ends_with(unit)) name.resize(name.size() - std::string(unit).size());
  }
  std::ranges::replace(name, '_', ' ');
  return name;
}

Json ValueOf(const gp::Message& m, const FieldDescriptor& f) {
  const gp::Reflection& r = *m.GetReflection();
  switch (f.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.GetInt32(m, &f);
    case FieldDescriptor::CPPTYPE_INT64:
      return r.GetInt64(m, &f);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.GetDouble(m, &f);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetBool(m, &f) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return r.GetString(m, &f);
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::string name = r.GetEnum(m, &f)->name();
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      return name;
    }
    default:
      return nullptr;
  }
}

bool IsScalar(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

class Comparison {
 public:
  explicit Comparison(std::vector<Difference>* out) : out_(*out) {}

  void Add(const std::string& section, const std::string& name, FigureKind kind, Json a, Json b) {
    if (a != b) out_.push_back({section, name, kind, std::move(a), std::move(b)});
  }

  // Every figure of a message; null where one report has no such message. `keys` have been
  // compared: they told that the two belong together.
  void AddFields(const std::string& section, const std::string& prefix, const gp::Message* a,
                 const gp::Message* b, const std::vector<std::string>& keys = {}) {
    const gp::Descriptor& type = *(a != nullptr ? a : b)->GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (!IsScalar(field) || std::ranges::find(keys, field.name()) != keys.end()) continue;
      const bool is_the_value = field.name() == "bytes" && !prefix.empty();
      const std::string words = is_the_value ? "" : Words(field.name());
      const std::string gap = prefix.empty() || words.empty() ? "" : " ";
      Add(section, fmt::format("{}{}{}", prefix, gap, words), KindOf(field),
          a == nullptr ? Json() : ValueOf(*a, field), b == nullptr ? Json() : ValueOf(*b, field));
    }
  }

  // Entries of two lists that have the same key. `absent` stands for an entry that is not there.
  template <typename T, typename KeyOf>
  void AddLists(const std::string& section, const gp::RepeatedPtrField<T>& a,
                const gp::RepeatedPtrField<T>& b, const KeyOf& key_of, const T* absent,
                const std::vector<std::string>& keys) {
    std::vector<std::string> order;
    std::map<std::string, std::pair<const T*, const T*>> pairs;
    const auto at = [&](const T& entry) -> auto& {
      const auto [place, is_new] = pairs.try_emplace(key_of(entry), absent, absent);
      if (is_new) order.push_back(place->first);
      return place->second;
    };
    for (const T& entry : a) at(entry).first = &entry;
    for (const T& entry : b) at(entry).second = &entry;
    for (const std::string& key : order) {
      AddFields(section, key, pairs[key].first, pairs[key].second, keys);
    }
  }

 private:
  std::vector<Difference>& out_;
};

std::string LedgerKey(const pb::LedgerTerm& term) { return term.name(); }

void DiffMemory(const pb::Report& a, const pb::Report& b, Comparison& c) {
  c.AddFields("fit", "", &a.fit(), &b.fit());
  const pb::LedgerTerm no_term;
  c.AddLists("ledger", a.peak().ledger(), b.peak().ledger(), LedgerKey, &no_term, {"name"});
  const auto place = [](const pb::Report& r) {
    return r.peak().has_at() ? Json(PlaceText(r.peak().at())) : Json();
  };
  c.Add("peak", "at", FigureKind::kText, place(a), place(b));
  const auto key = [](const pb::PhaseMemory& p) {
    const std::string turn = p.micro_batch() > 0 ? fmt::format(" {}", p.micro_batch()) : "";
    return p.program() + " " + PhaseName(p.phase()) + turn;
  };
  const pb::PhaseMemory* none = nullptr;
  c.AddLists("phases", a.phases(), b.phases(), key, none, {"program", "phase", "micro_batch"});
}

void DiffTime(const pb::Report& a, const pb::Report& b, Comparison& c) {
  c.AddFields("timing", "", &a.timing(), &b.timing());
  const auto phase = [](const pb::PhaseTime& p) { return PhaseName(p.phase()); };
  const pb::PhaseTime no_time;
  c.AddLists("timing", a.timing().phases(), b.timing().phases(), phase, &no_time, {"phase"});
  const auto key = [](const pb::CollectiveTotal& t) {
    return fmt::format("{} {} {}", t.kind(), PhaseName(t.phase()), t.group());
  };
  const pb::CollectiveTotal none;
  c.AddLists("collectives", a.collectives(), b.collectives(), key, &none,
             {"kind", "phase", "group"});
}

// ---- units

struct UnitPair {
  const pb::UnitReport* a = nullptr;
  const pb::UnitReport* b = nullptr;
};

bool Alike(const pb::UnitReport* x, const pb::UnitReport* y) {
  return x == nullptr || y == nullptr ? x == y : UnitsAlike(*x, *y);
}

Json AllFigures(const pb::UnitReport* unit) {
  if (unit == nullptr) return nullptr;
  Json object = Json::object();
  const gp::Descriptor& type = *unit->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    object[type.field(i)->name()] = ValueOf(*unit, *type.field(i));
  }
  return object;
}

// Units of `a` in their order, then those that only `b` has.
void DiffUnits(const pb::Report& a, const pb::Report& b, Comparison& c) {
  std::map<std::string, const pb::UnitReport*> others;
  for (const pb::UnitReport& unit : b.units()) others[unit.name()] = &unit;
  std::vector<UnitPair> pairs;
  std::vector<std::string> names;
  const auto add = [&](const UnitPair& pair, const std::string& name) {
    pairs.push_back(pair);
    names.push_back(name);
  };
  for (const pb::UnitReport& unit : a.units()) {
    const auto other = others.extract(unit.name());
    add({&unit, other.empty() ? nullptr : other.mapped()}, unit.name());
  }
  for (const pb::UnitReport& unit : b.units()) {
    if (others.contains(unit.name())) add({nullptr, &unit}, unit.name());
  }
  const auto alike = [&](size_t x, size_t y) {
    return Alike(pairs[x].a, pairs[y].a) && Alike(pairs[x].b, pairs[y].b);
  };
  for (const Fold& fold : FoldNames(names, alike)) {
    const UnitPair& pair = pairs[fold.begin];
    if (pair.a != nullptr && pair.b != nullptr) {
      c.AddFields("units", fold.label, pair.a, pair.b, {"name"});
    } else {
      c.Add("units", fold.label, FigureKind::kUnit, AllFigures(pair.a), AllFigures(pair.b));
    }
  }
}

// ---- the rest

void DiffTextbooks(const pb::Report& a, const pb::Report& b, Comparison& c) {
  if (!a.has_textbook() && !b.has_textbook()) return;
  c.AddFields("textbook", "", a.has_textbook() ? &a.textbook() : nullptr,
              b.has_textbook() ? &b.textbook() : nullptr);
  const pb::LedgerTerm no_term;
  c.AddLists("textbook", a.textbook().difference(), b.textbook().difference(), LedgerKey, &no_term,
             {"name"});
}

void DiffAssumptions(const pb::Report& a, const pb::Report& b, Comparison& c) {
  const auto has = [](const pb::Report& report, const std::string& sentence) {
    return std::ranges::find(report.assumptions(), sentence) != report.assumptions().end();
  };
  for (const std::string& one : a.assumptions()) {
    if (!has(b, one)) c.Add("assumptions", "", FigureKind::kText, one, nullptr);
  }
  for (const std::string& one : b.assumptions()) {
    if (!has(a, one)) c.Add("assumptions", "", FigureKind::kText, nullptr, one);
  }
}

const char* UnitOf(FigureKind kind) {
  switch (kind) {
    case FigureKind::kBytes:
      return "bytes";
    case FigureKind::kTime:
      return "ps";
    case FigureKind::kShare:
      return "fraction";
    default:
      return "";
  }
}

}  // namespace

std::vector<Difference> Differences(const pb::Report& a, const pb::Report& b) {
  std::vector<Difference> differences;
  Comparison comparison(&differences);
  comparison.AddFields("setup", "", &a, &b);
  comparison.AddFields("setup", "", &a.setup(), &b.setup());
  comparison.Add("setup", "nodes", FigureKind::kText, NodesText(a.setup()), NodesText(b.setup()));
  DiffMemory(a, b, comparison);
  DiffTime(a, b, comparison);
  DiffUnits(a, b, comparison);
  DiffTextbooks(a, b, comparison);
  DiffAssumptions(a, b, comparison);
  return differences;
}

Json DifferencesAsJson(const std::string& name_a, const std::string& name_b,
                       const std::vector<Difference>& differences) {
  Json list = Json::array();
  for (const Difference& d : differences) {
    Json entry = {
        {"section", d.section}, {"name", d.name}, {"unit", UnitOf(d.kind)}, {"a", d.a}, {"b", d.b}};
    if (d.a.is_number() && d.b.is_number()) {
      entry["change"] = d.a.is_number_float() || d.b.is_number_float()
                            ? Json(d.b.get<double>() - d.a.get<double>())
                            : Json(d.b.get<int64_t>() - d.a.get<int64_t>());
    }
    list.push_back(std::move(entry));
  }
  return {{"schema_version", 1}, {"a", name_a}, {"b", name_b}, {"differences", std::move(list)}};
}

}  // namespace foreshard
