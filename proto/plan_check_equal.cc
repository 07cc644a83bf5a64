// EquivalentPlans: an op is named by a hash of itself and of the ops whose data it meets, each with
// whether it has certainly ended; two plans are equivalent when the names of their ops are equal.
#include <algorithm>
#include <map>
#include <vector>

#include "proto/base/text.h"
#include "proto/happens_before.h"
#include "proto/plan_check_facts.h"
#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

class NamingWalk {
 public:
  explicit NamingWalk(const pb::Plan& plan)
      : plan_(plan), order_(plan), contents_(static_cast<size_t>(plan.buffers_size())) {
    for (const pb::Segment& segment : plan.segments()) {
      std::vector<uint64_t>& selves = selves_.emplace_back();
      for (const pb::Op& op : segment.ops()) selves.push_back(Self(op));
    }
  }

  void BeginProgram(int number) { names_.push_back(static_cast<uint64_t>(number)); }
  void BeginSegment(int number, int segment, int) { order_.BeginSegment(number, segment); }
  Status EndProgram(int) { return OkStatus(); }

  Status Visit(int segment, int index) {
    const pb::Op& op = plan_.segments(segment).ops(index);
    for (const int32_t b : op.allocs()) content(b) = {};
    order_.Issue(index);
    if (op.in().empty() && op.out().empty()) return OkStatus();
    uint64_t name = selves_[static_cast<size_t>(segment)][static_cast<size_t>(index)];
    if (op.has_bucket_copy_in()) {
      WritePart(op, name);
      return OkStatus();
    }
    for (const int32_t b : op.in()) name = Mix(name, Written(content(b)));
    for (const int32_t b : op.out()) {
      name = Mix(Mix(name, Written(content(b))), All(content(b).readers));
    }
    for (const int32_t b : op.in()) content(b).readers.push_back({name, order_.last()});
    for (size_t i = 0; i < static_cast<size_t>(op.out_size()); ++i) {
      content(op.out(static_cast<int>(i))) = {{Mix(name, i), order_.last()}, {}, {}};
    }
    names_.push_back(name);
    return OkStatus();
  }

  std::vector<uint64_t> SortedNames() {
    std::sort(names_.begin(), names_.end());
    return std::move(names_);
  }

 private:
  struct Access {
    uint64_t name = 0;
    HappensBefore::Point point;
  };
  struct Content {
    Access writer;                    // of all of it
    std::vector<Access> readers;      // since it was written
    std::map<int32_t, Access> parts;  // of a bucket, since: by parameter, which do not overlap
  };

  // A gradient on its way into its part of a bucket meets nothing of the other parts.
  void WritePart(const pb::Op& op, uint64_t name) {
    const int32_t bucket = op.out(0);
    Content& c = content(bucket);
    Access& part = c.parts[op.bucket_copy_in().parameter()];
    name = Mix(Mix(Mix(name, Met(c.writer)), Met(part)), All(c.readers));
    for (const int32_t b : op.in()) {
      if (b == bucket) continue;
      name = Mix(name, Written(content(b)));
      content(b).readers.push_back({name, order_.last()});
    }
    part = {name, order_.last()};
    names_.push_back(name);
  }

  // In any order.
  uint64_t All(const std::vector<Access>& accesses) const {
    uint64_t sum = 0;
    for (const Access& access : accesses) sum += Met(access);
    return sum;
  }
  uint64_t Written(const Content& c) const {
    uint64_t written = Met(c.writer);
    for (const auto& [parameter, access] : c.parts) written = Mix(written, Met(access));
    return written;
  }

  Content& content(int32_t buffer) { return contents_[static_cast<size_t>(buffer)]; }
  uint64_t Met(const Access& access) const {
    return Mix(access.name, order_.HasEnded(access.point) ? 1 : 0);
  }

  // The op but for when it waits and what becomes of memory.
  static uint64_t Self(const pb::Op& op) {
    pb::Op self = op;
    self.clear_waits();
    self.clear_host_waits();
    self.clear_allocs();
    self.clear_frees();
    self.clear_settles();
    self.clear_record();
    self.clear_record_stream();
    self.clear_event_waits();
    return Fnv1a64(self.SerializeAsString());
  }

  const pb::Plan& plan_;
  HappensBefore order_;
  std::vector<std::vector<uint64_t>> selves_;  // per segment and op
  std::vector<Content> contents_;              // per buffer
  std::vector<uint64_t> names_;
};

// The plan without its ops, and without what ops may move and sizes and categories of buffers.
std::string Tables(const pb::Plan& plan) {
  pb::Plan tables = plan;
  tables.clear_header();
  tables.clear_decisions();
  tables.clear_segments();
  tables.clear_programs();
  tables.clear_events();
  for (pb::Buffer& b : *tables.mutable_buffers()) {
    const int32_t stream = b.stream();
    b.Clear();
    b.set_stream(stream);
  }
  return tables.SerializeAsString();
}

}  // namespace

bool EquivalentPlans(const pb::Plan& a, const pb::Plan& b) {
  if (Tables(a) != Tables(b)) return false;
  const int repetitions =
      std::max(plan_check::WalkedRepetitions(a), plan_check::WalkedRepetitions(b));
  const auto names = [&](const pb::Plan& plan) {
    NamingWalk walk(plan);
    CHECK(plan_check::WalkPlan(plan, repetitions, walk).ok());
    return walk.SortedNames();
  };
  return names(a) == names(b);
}

}  // namespace foreshard
