// Peaks as both reports sum them up, and bytes after every op.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tools/render/names.h"
#include "tools/report_join.h"

namespace foreshard {
namespace {

using Rows = google::protobuf::RepeatedPtrField<pb::CategoryBytes>;
using Held = std::map<pb::Category, int64_t>;

void Add(const Rows& rows, int sign, Held& held) {
  for (const pb::CategoryBytes& row : rows) held[row.category()] += sign * row.bytes();
}

Held HeldOf(const Rows& rows) {
  Held held;
  Add(rows, +1, held);
  return held;
}

Held HeldAtPeak(const pb::Peak& peak) {
  Held held;
  for (const pb::LiveGroup& group : peak.live()) held[group.category()] += group.bytes();
  return held;
}

// Categories of which either has any.
std::vector<CategoryPair> Pairs(const Held& a, const Held& b) {
  std::map<pb::Category, CategoryPair> pairs;
  for (const auto& [category, bytes] : a) pairs[category].a = bytes;
  for (const auto& [category, bytes] : b) pairs[category].b = bytes;
  std::vector<CategoryPair> out;
  for (auto& [category, pair] : pairs) {
    if (pair.a == 0 && pair.b == 0) continue;
    pair.category = category;
    out.push_back(pair);
  }
  return out;
}

std::vector<CategoryPair> Unequal(std::vector<CategoryPair> pairs) {
  std::erase_if(pairs, [](const CategoryPair& pair) { return pair.a == pair.b; });
  return pairs;
}

// Every category, and what they add up to.
bool Allowed(const std::vector<CategoryPair>& pairs, const ByteTolerance& tolerance) {
  int64_t a = 0;
  int64_t b = 0;
  for (const CategoryPair& pair : pairs) {
    if (!tolerance.Allows(pair.a, pair.b)) return false;
    a += pair.a;
    b += pair.b;
  }
  return tolerance.Allows(a, b);
}

// ---- peaks

bool SamePlace(const std::optional<pb::OpRef>& a, const std::optional<pb::OpRef>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->program() == b->program() && a->segment() == b->segment() &&
         a->repetition() == b->repetition() && a->op() == b->op();
}

// One report's side of a moment.
struct Side {
  int64_t bytes = 0;
  Held held;
  std::optional<pb::OpRef> at;
};

class Moments {
 public:
  explicit Moments(const ByteTolerance& tolerance) : tolerance_(tolerance) {}

  // nullptr = the report has no such moment.
  void Add(const std::string& where, const std::string& moment, const Side* a, const Side* b) {
    MomentPair pair;
    pair.where = where;
    pair.moment = moment;
    const Side none;
    pair.in_a = a != nullptr;
    pair.in_b = b != nullptr;
    if (a == nullptr) a = &none;
    if (b == nullptr) b = &none;
    pair.a = a->bytes;
    pair.b = b->bytes;
    pair.categories = Pairs(a->held, b->held);
    pair.at_a = a->at;
    pair.at_b = b->at;
    pair.same_place = SamePlace(a->at, b->at);
    pair.within = pair.in_a && pair.in_b && tolerance_.Allows(pair.a, pair.b) &&
                  Allowed(pair.categories, tolerance_);
    moments_.push_back(std::move(pair));
  }

  std::vector<MomentPair> Take() { return std::move(moments_); }

 private:
  const ByteTolerance& tolerance_;
  std::vector<MomentPair> moments_;
};

Side WholeOf(const pb::Report& report) {
  Side side{report.peak().bytes(), HeldAtPeak(report.peak()), std::nullopt};
  if (report.peak().has_at()) side.at = report.peak().at();
  return side;
}

struct NamedSide {
  std::string moment;
  Side side;
};

std::vector<NamedSide> SidesOf(const pb::PhaseMemory& phase) {
  Side peak{phase.peak_bytes(), HeldOf(phase.peak_by_category()), std::nullopt};
  if (phase.has_peak_at()) peak.at = phase.peak_at();
  Side managed{phase.managed_peak_bytes(), HeldOf(phase.managed_peak_by_category()), std::nullopt};
  if (phase.has_managed_peak_at()) managed.at = phase.managed_peak_at();
  const Side end{phase.end_bytes(), HeldOf(phase.end_by_category()), std::nullopt};
  return {{"peak", peak}, {"managed peak", managed}, {"end", end}};
}

std::vector<NamedSide> SidesOf(const pb::RankMemory& rank) {
  Side peak{rank.peak_bytes(), HeldOf(rank.peak_by_category()), std::nullopt};
  if (rank.has_peak_at()) peak.at = rank.peak_at();
  Side end{0, HeldOf(rank.end_by_category()), std::nullopt};
  for (const auto& [category, bytes] : end.held) end.bytes += bytes;
  return {{"peak", peak}, {"end", end}};
}

std::string NameOf(const pb::PhaseMemory& phase) {
  return phase.program() + " " + PhaseName(phase.phase(), phase.micro_batch());
}

// With the count of those alike, so that other groups are other rows.
std::string NameOf(const pb::RankMemory& rank) {
  return rank.ranks() == 1 ? fmt::format("rank {}", rank.rank())
                           : fmt::format("rank {} of {} alike", rank.rank(), rank.ranks());
}

// Entries of two lists by their names and turns, those of `a` first.
template <typename T>
void AddLists(const google::protobuf::RepeatedPtrField<T>& a,
              const google::protobuf::RepeatedPtrField<T>& b, Moments& moments) {
  const auto by_name = [](const auto& entries) {
    std::multimap<std::string, const T*> found;
    for (const T& entry : entries) found.emplace(NameOf(entry), &entry);
    return found;
  };
  const auto add = [&](const T* x, const T* y) {
    const std::string name = NameOf(x != nullptr ? *x : *y);
    const std::vector<NamedSide> of_x = x != nullptr ? SidesOf(*x) : std::vector<NamedSide>{};
    const std::vector<NamedSide> of_y = y != nullptr ? SidesOf(*y) : std::vector<NamedSide>{};
    for (size_t i = 0; i < std::max(of_x.size(), of_y.size()); ++i) {
      moments.Add(name, (x != nullptr ? of_x : of_y)[i].moment,
                  x != nullptr ? &of_x[i].side : nullptr, y != nullptr ? &of_y[i].side : nullptr);
    }
  };
  std::multimap<std::string, const T*> others = by_name(b);
  for (const T& entry : a) {
    const auto other = others.extract(NameOf(entry));
    add(&entry, other.empty() ? nullptr : other.mapped());
  }
  for (const T& entry : b) {
    const auto left = std::ranges::find(others, &entry, [](const auto& row) { return row.second; });
    if (left != others.end()) add(nullptr, &entry);
  }
}

// ---- op by op

class MemoryWalk {
 public:
  MemoryWalk(const pb::Timeline& names, const ByteTolerance& tolerance, MemoryJoin* join)
      : names_(names), tolerance_(tolerance), join_(*join) {}

  void Begin(const Rows& a, const Rows& b) {
    Step("resident", a, b, +1);
    if (!within_) ++join_.beyond;
  }

  void Visit(int index, const pb::TimelineOp& a, const pb::TimelineOp& b) {
    equal_ = within_ = same_changes_ = true;
    index_ = index;
    Step("allocated", a.allocated(), b.allocated(), +1);
    Step("settled", a.settled(), b.settled(), +1);
    Step("freed", a.freed(), b.freed(), -1);
    ++join_.ops;
    if (equal_) ++join_.equal;
    if (!within_) ++join_.beyond;
    if (!same_changes_) ++join_.unequal_changes;
  }

 private:
  void Step(const char* moment, const Rows& a, const Rows& b, int sign) {
    Add(a, sign, a_);
    Add(b, sign, b_);
    const std::vector<CategoryPair> changes = Pairs(HeldOf(a), HeldOf(b));
    same_changes_ &= Unequal(changes).empty();
    const std::vector<CategoryPair> all = Pairs(a_, b_);
    std::vector<CategoryPair> running = Unequal(all);
    if (running.empty()) return;
    equal_ = false;
    within_ &= Allowed(all, tolerance_);
    if (join_.first) return;
    const pb::OpRef op = index_ < 0 ? pb::OpRef() : Refer(names_, names_.ops(index_));
    join_.first = Parting{index_, op, moment, std::move(running), changes};
  }

  const pb::Timeline& names_;
  const ByteTolerance& tolerance_;
  MemoryJoin& join_;
  int index_ = -1;
  Held a_;
  Held b_;
  bool equal_ = true;
  bool within_ = true;
  bool same_changes_ = true;
};

}  // namespace

std::vector<MomentPair> JoinMoments(const pb::Report& a, const pb::Report& b,
                                    const ByteTolerance& tolerance) {
  Moments moments(tolerance);
  const Side whole_a = WholeOf(a);
  const Side whole_b = WholeOf(b);
  moments.Add("whole", "peak", &whole_a, &whole_b);
  AddLists(a.phases(), b.phases(), moments);
  AddLists(a.ranks(), b.ranks(), moments);
  return moments.Take();
}

MemoryJoin JoinMemory(const pb::Timeline& a, const pb::Timeline& b,
                      const ByteTolerance& tolerance) {
  MemoryJoin join;
  MemoryWalk walk(a, tolerance, &join);
  walk.Begin(a.resident(), b.resident());
  for (int i = 0; i < a.ops_size(); ++i) walk.Visit(i, a.ops(i), b.ops(i));
  return join;
}

}  // namespace foreshard
