// Walks the programs and follows which buffers are alive and which units have been reduced.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

class Walk {
 public:
  explicit Walk(const pb::Plan& plan)
      : plan_(plan),
        alive_(static_cast<size_t>(plan.buffers_size()), false),
        resident_(alive_),
        writes_(alive_.size(), 0) {
    for (const int32_t buffer : plan.resident()) {
      alive_[static_cast<size_t>(buffer)] = resident_[static_cast<size_t>(buffer)] = true;
    }
  }

  const std::vector<bool>& alive() const { return alive_; }

  Status Run(const pb::Program& program) {
    program_ = program.name();
    gathered_.clear();
    reduced_.clear();
    differentiated_.clear();
    backward_ = false;
    for (const pb::SegmentUse& use : program.uses()) {
      for (int i = 0; i < plan_.segments(use.segment()).ops_size(); ++i) {
        RETURN_IF_ERROR(Count(plan_.segments(use.segment()), i, use.repeat()));
      }
      // What a segment leaves alive is decided by the last alloc or free of each buffer, so a
      // third repetition starts exactly where the second did.
      for (int i = 0; i < std::min(use.repeat(), 2); ++i) {
        RETURN_IF_ERROR(RunSegment(plan_.segments(use.segment())));
      }
    }
    return CheckReduced();
  }

 private:
  Status RunSegment(const pb::Segment& segment) {
    // What a segment finds written counts as written once.
    for (const int32_t buffer : rewritten_) writes_[static_cast<size_t>(buffer)] = 1;
    rewritten_.clear();
    for (int i = 0; i < segment.ops_size(); ++i) {
      RETURN_IF_ERROR(Allocate(segment, i));
      RETURN_IF_ERROR(Use(segment, i));
      RETURN_IF_ERROR(Read(segment, i));
      RETURN_IF_ERROR(Settle(segment, i));
      RETURN_IF_ERROR(Free(segment, i));
    }
    return OkStatus();
  }

  Status Broken(const pb::Segment& segment, int op, std::string_view verb, int32_t buffer,
                std::string_view why) const {
    return plan_check::Broken(
        "lifetime", OpPlace(plan_, segment, op),
        fmt::format("{} buffer {}, which {} (program \"{}\")", verb, buffer, why, program_));
  }

  Status Allocate(const pb::Segment& segment, int op) {
    for (const int32_t buffer : segment.ops(op).allocs()) {
      if (alive_[static_cast<size_t>(buffer)]) {
        return Broken(segment, op, "allocates", buffer, "is alive already");
      }
      alive_[static_cast<size_t>(buffer)] = true;
      writes_[static_cast<size_t>(buffer)] = 0;
    }
    return OkStatus();
  }

  // Kernels and reductions read the version of each buffer that the plan says; then the op's own
  // writes count.
  Status Read(const pb::Segment& segment, int index) {
    const pb::Op& op = segment.ops(index);
    const bool counted = op.has_compute() || op.has_reduce_copy_in() || op.has_concat_gradients() ||
                         op.has_bucket_copy_in();
    for (int i = 0; counted && i < op.in_size(); ++i) {
      const size_t buffer = static_cast<size_t>(op.in(i));
      const int expected = op.in_versions().empty() ? 1 : op.in_versions(i);
      // Rule written has its own words for what nothing wrote.
      if (resident_[buffer] || writes_[buffer] == 0 || writes_[buffer] == expected) continue;
      return plan_check::Broken(
          "version", OpPlace(plan_, segment, index),
          fmt::format("reads version {} of buffer {}, which has been written {} times (program "
                      "\"{}\")",
                      expected, buffer, writes_[buffer], program_));
    }
    for (const int32_t buffer : op.out()) {
      if (++writes_[static_cast<size_t>(buffer)] == 2) rewritten_.push_back(buffer);
    }
    return OkStatus();
  }

  Status Settle(const pb::Segment& segment, int op) const {
    for (const pb::Settle& settle : segment.ops(op).settles()) {
      if (alive_[static_cast<size_t>(settle.buffer())]) continue;
      return plan_check::Broken(
          "settle", OpPlace(plan_, segment, op),
          fmt::format("settles buffer {}, which is not alive (program \"{}\")", settle.buffer(),
                      program_));
    }
    return OkStatus();
  }

  Status Use(const pb::Segment& segment, int op) const {
    for (const int32_t buffer : segment.ops(op).in()) {
      if (!alive_[static_cast<size_t>(buffer)]) {
        return Broken(segment, op, "reads", buffer, "is not alive");
      }
    }
    for (const int32_t buffer : segment.ops(op).out()) {
      if (!alive_[static_cast<size_t>(buffer)]) {
        return Broken(segment, op, "writes", buffer, "is not alive");
      }
    }
    return OkStatus();
  }

  Status Free(const pb::Segment& segment, int op) {
    for (const int32_t buffer : segment.ops(op).frees()) {
      if (resident_[static_cast<size_t>(buffer)]) {
        return Broken(segment, op, "frees", buffer, "is resident");
      }
      if (!alive_[static_cast<size_t>(buffer)]) {
        return Broken(segment, op, "frees", buffer, "is not alive");
      }
      alive_[static_cast<size_t>(buffer)] = false;
    }
    return OkStatus();
  }

  // Micro-batches of a step, first to last.
  struct MicroBatches {
    int64_t first = 0;
    int64_t last = 0;
  };

  // Notes gathers and reductions of an op and its repetitions; a unit is reduced at most once for a
  // micro-batch.
  Status Count(const pb::Segment& segment, int index, int32_t repeat) {
    const pb::Op& op = segment.ops(index);
    backward_ = backward_ || op.phase() == pb::BACKWARD;
    NoteGradients(op);
    if (!op.has_unit()) return OkStatus();
    const MicroBatches now{op.micro_batch(), int64_t{op.micro_batch()} + repeat - 1};
    if (op.has_all_gather() || op.has_local_gather() || op.has_concat_gradients()) {
      int64_t& last = gathered_.try_emplace(op.unit(), now.last).first->second;
      last = std::max(last, now.last);
    }
    if (!Reduces(op)) return OkStatus();
    for (const MicroBatches& before : reduced_[op.unit()]) {
      if (before.last < now.first || now.last < before.first) continue;
      return plan_check::Broken(
          "reduce", OpPlace(plan_, segment, index),
          fmt::format("unit \"{}\" is reduced twice in micro-batch {} (program \"{}\")",
                      plan_.units(op.unit()).name(), std::max(before.first, now.first), program_));
    }
    reduced_[op.unit()].push_back(now);
    return OkStatus();
  }

  // Of a flat parameter that is not sharded, what adds up its gradients.
  bool Reduces(const pb::Op& op) const {
    const bool whole = plan_.mesh().shard_size() == 1 && plan_.units(op.unit()).has_flat();
    return op.has_reduce_scatter() || op.has_local_reduce() || (whole && op.has_all_reduce());
  }

  void NoteGradients(const pb::Op& op) {
    const auto note = [&](int32_t b, pb::Category category) {
      const bool is_gradient = category == pb::UNSHARDED_GRAD || category == pb::PARAM_GRAD;
      if (is_gradient && plan_.buffers(b).has_unit())
        differentiated_.insert(plan_.buffers(b).unit());
    };
    for (const int32_t b : op.out()) note(b, plan_.buffers(b).category());
    for (const pb::Settle& settle : op.settles()) note(settle.buffer(), settle.category());
  }

  // In a step that has a backward, a unit that was gathered and whose gradients were written is
  // reduced in the last micro-batch that gathers it, or in a later one that finds it gathered.
  Status CheckReduced() const {
    if (!backward_) return OkStatus();
    for (const auto& gathered : gathered_) {
      const auto unit = gathered.first;
      const auto last = gathered.second;  // a structured binding cannot be captured below
      if (plan_.units(unit).grad_padded_shard_numel() == 0 || !differentiated_.contains(unit)) {
        continue;
      }
      const auto found = reduced_.find(unit);
      const bool reduced =
          found != reduced_.end() &&
          std::ranges::any_of(found->second, [&](const MicroBatches& m) { return m.last >= last; });
      if (reduced) continue;
      return plan_check::Broken(
          "reduce", fmt::format("program \"{}\"", program_),
          fmt::format("unit \"{}\" is gathered in micro-batch {} but not reduced in it or later",
                      plan_.units(unit).name(), last));
    }
    return OkStatus();
  }

  const pb::Plan& plan_;
  std::string program_;
  std::vector<bool> alive_;
  std::vector<bool> resident_;
  std::vector<int> writes_;         // since the allocation, or once before this segment
  std::vector<int32_t> rewritten_;  // buffers that this segment has written more often
  // Of this program, by unit: the last micro-batch that gathers it, those that reduce it.
  std::map<int32_t, int64_t> gathered_;
  std::map<int32_t, std::vector<MicroBatches>> reduced_;
  std::set<int32_t> differentiated_;  // units of which a gradient is written
  bool backward_ = false;
};

}  // namespace

Status CheckLifetimes(const pb::Plan& plan) {
  Walk walk(plan);
  const int steady = plan.programs_size() - 1;
  for (int i = 0; i < steady; ++i) RETURN_IF_ERROR(walk.Run(plan.programs(i)));
  const std::vector<bool> before = walk.alive();
  // Once is enough: if it ends as it starts, the next walk repeats this one.
  RETURN_IF_ERROR(walk.Run(plan.programs(steady)));
  for (size_t i = 0; i < before.size(); ++i) {
    if (walk.alive()[i] != before[i]) {
      return Broken("steady", "program \"steady\"",
                    fmt::format("buffer {} is {} at its end but {} at its start", i,
                                before[i] ? "dead" : "alive", before[i] ? "alive" : "dead"));
    }
  }
  return OkStatus();
}

}  // namespace foreshard::plan_check
