#include "tools/textbook.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/dtype.h"
#include "proto/oplib/optimizer_state.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/memory_recorder.h"

namespace foreshard {
namespace {

// A managed buffer that is alive, here or on the host, as it counts at that moment.
struct Held {
  int buffer = 0;
  pb::Category category = pb::CATEGORY_UNSPECIFIED;
  bool copied_out = false;  // of a gather's output
};

// Buffers alive at the highest moment of the device in the steady program, by the plan's order
// alone.
class PeakFinder {
 public:
  explicit PeakFinder(const pb::Plan& plan)
      : plan_(plan),
        alive_(static_cast<size_t>(plan.buffers_size())),
        copied_(static_cast<size_t>(plan.buffers_size())) {
    for (const pb::Buffer& b : plan.buffers()) category_.push_back(b.category());
    for (const int b : plan.resident()) Add(b);
    for (const pb::Program& program : plan.programs()) {
      recording_ = &program == &*plan.programs().rbegin();
      if (recording_) Look();
      for (const pb::SegmentUse& use : program.uses()) {
        for (int i = 0; i < use.repeat(); ++i) Walk(plan.segments(use.segment()));
      }
    }
    Keep();
  }

  int64_t bytes() const { return peak_bytes_; }
  const std::vector<Held>& held() const { return peak_; }

 private:
  void Walk(const pb::Segment& segment) {
    for (const pb::Op& op : segment.ops()) {
      for (const int b : op.allocs()) {
        category_[static_cast<size_t>(b)] = plan_.buffers(b).category();
        copied_[static_cast<size_t>(b)] = false;
        Add(b);
      }
      Look();
      for (const pb::Settle& settle : op.settles()) {
        Remove(settle.buffer());
        category_[static_cast<size_t>(settle.buffer())] = settle.category();
        Add(settle.buffer());
      }
      Look();
      if (op.has_copy_out()) {
        Keep();
        for (const int b : op.in()) copied_[static_cast<size_t>(b)] = true;
      }
      for (const int b : op.frees()) Remove(b);
    }
  }

  bool Managed(int b) const {
    return run::IsManaged(category_[static_cast<size_t>(b)]) && !plan_.buffers(b).host();
  }
  void Add(int b) {
    alive_[static_cast<size_t>(b)] = true;
    if (Managed(b)) bytes_ += plan_.buffers(b).bytes();
  }
  void Remove(int b) {
    Keep();
    alive_[static_cast<size_t>(b)] = false;
    if (Managed(b)) bytes_ -= plan_.buffers(b).bytes();
  }

  // Whether this is the highest moment so far; the first of several counts.
  void Look() {
    if (!recording_ || bytes_ <= peak_bytes_) return;
    peak_bytes_ = bytes_;
    at_peak_ = true;
  }

  // Notes what is held, if this is the highest moment, before anything changes.
  void Keep() {
    if (!at_peak_) return;
    at_peak_ = false;
    peak_.clear();
    for (int b = 0; b < plan_.buffers_size(); ++b) {
      const auto i = static_cast<size_t>(b);
      const bool managed = run::IsManaged(category_[i]);
      if (alive_[i] && managed) peak_.push_back({b, category_[i], copied_[i]});
    }
  }

  const pb::Plan& plan_;
  std::vector<bool> alive_;
  std::vector<bool> copied_;
  std::vector<pb::Category> category_;
  bool recording_ = false;  // in the program `steady`
  bool at_peak_ = false;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = -1;
  std::vector<Held> peak_;
};

// The unit that U counts; nullptr in a plan without units.
const pb::Unit* LargestUnit(const pb::Plan& plan) {
  const pb::Unit* largest = nullptr;
  for (const pb::Unit& unit : plan.units()) {
    const auto key = [](const pb::Unit& u) {
      return std::pair(u.reshard_after_forward(), u.numel());
    };
    if (largest == nullptr || key(*largest) < key(unit)) largest = &unit;
  }
  return largest;
}

// a x k, or the largest number there is.
int64_t Times(int64_t a, int64_t k) {
  int64_t product = 0;
  const bool overflows = __builtin_mul_overflow(a, k, &product);
  return overflows ? std::numeric_limits<int64_t>::max() : product;
}

// a x k / n, rounded down.
int64_t Share(int64_t a, int64_t k, int64_t n) { return Times(a / n, k) + Times(a % n, k) / n; }

void FillForms(const pb::Plan& plan, pb::Textbook& t) {
  const int64_t parameters = plan.header().parameter_count();
  const int ranks = plan.mesh().shard_size();
  const pb::Unit* unit = LargestUnit(plan);
  t.set_parameters(parameters);
  t.set_unit_parameters(unit == nullptr ? 0 : unit->numel());
  t.set_ranks(ranks);
  t.set_gathered_ahead(plan.units_size() > 1 && ranks > 1 ? 1 : 0);  // one rank gathers nothing
  t.set_replicated_bytes(Times(parameters, 16));
  t.set_persistent_bytes(Share(parameters, 16, ranks));
  t.set_transient_bytes(Times(t.unit_parameters(), 2 * (1 + t.gathered_ahead())));
  t.set_payload_bytes(Times(parameters, 3 * 2));
  t.set_all_reduce_bytes(Times(parameters, 2 * 2));
  t.set_ring_payload_bytes(Share(t.payload_bytes(), ranks - 1, ranks));
  t.set_ring_all_reduce_bytes(Share(t.all_reduce_bytes(), ranks - 1, ranks));
}

// What is held at the peak, sorted by what textbooks call it.
struct Sums {
  int64_t shards = 0;
  int64_t gradients = 0;
  int64_t counters = 0;  // the optimizer's, one of each parameter
  int64_t moments = 0;
  int64_t in_use = 0;    // gathered parameters of units that are freed after forward, or of U's
  int64_t kept = 0;      // ... of the others
  int64_t parts = 0;     // of gathered parameters, kept after forward
  int64_t arriving = 0;  // gather outputs before their copy-out
  int64_t copied = 0;    // ... and after it
  int64_t cast = 0;
  int64_t full_gradients = 0;
  int64_t reduce_inputs = 0;
  int64_t reduce_outputs = 0;
  int64_t on_host = 0;  // of all these
};

// Of each parameter AdamW creates a counter and two moments, in this order; SGD has no counters.
std::vector<bool> CountersOf(const pb::Plan& plan) {
  std::vector<bool> counters(static_cast<size_t>(plan.buffers_size()), false);
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (!op.has_optimizer_init() || op.optimizer_init().kind() == pb::SGD) continue;
      for (int i = 0; i < op.out_size(); i += 3) counters[static_cast<size_t>(op.out(i))] = true;
    }
  }
  return counters;
}

int64_t& SumFor(const pb::Plan& plan, const Held& held, bool is_counter, Sums& sums) {
  switch (held.category) {
    case pb::SHARDED_PARAM:
      return sums.shards;
    case pb::SHARDED_GRAD:
      return sums.gradients;
    case pb::OPTIMIZER_STATE:
      return is_counter ? sums.counters : sums.moments;
    case pb::AG_OUTPUT:
      return held.copied_out ? sums.copied : sums.arriving;
    case pb::CAST:
      return sums.cast;
    case pb::POST_FORWARD_SHARD:
      return sums.parts;
    case pb::UNSHARDED_GRAD:
    case pb::PARAM_GRAD:
    case pb::BUCKET:
      return sums.full_gradients;
    case pb::RS_INPUT:
      return sums.reduce_inputs;
    case pb::RS_OUTPUT:
      return sums.reduce_outputs;
    default:
      break;
  }
  const pb::Buffer& buffer = plan.buffers(held.buffer);
  const pb::Unit* unit = buffer.has_unit() ? &plan.units(buffer.unit()) : nullptr;
  const bool frees = unit == nullptr || unit->reshard_after_forward();
  return frees || unit == LargestUnit(plan) ? sums.in_use : sums.kept;
}

Sums SumsOf(const pb::Plan& plan, const std::vector<Held>& held) {
  const std::vector<bool> counters = CountersOf(plan);
  Sums sums;
  for (const Held& h : held) {
    SumFor(plan, h, counters[static_cast<size_t>(h.buffer)], sums) +=
        plan.buffers(h.buffer).bytes();
    if (plan.buffers(h.buffer).host()) sums.on_host += plan.buffers(h.buffer).bytes();
  }
  return sums;
}

// Bytes a parameter's moments take; of those in 8 bits the codes.
int64_t MomentSize(const pb::Plan& plan) {
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (!op.has_optimizer_init()) continue;
      const pb::OptimizerInit& init = op.optimizer_init();
      if (init.kind() == pb::ADAMW_8BIT) return 2;
      const pb::DType dtype = oplib::MomentDType(plan, init.dtype());
      return (init.kind() == pb::SGD ? 1 : 2) * SizeOf(static_cast<DType>(dtype));
    }
  }
  return 0;
}

void FillDifference(const pb::Plan& plan, const Sums& s, pb::Textbook& t) {
  const auto term = [&t](std::string_view name, int64_t bytes) {
    if (bytes == 0) return;
    pb::LedgerTerm& out = *t.add_difference();
    out.set_name(std::string(name));
    out.set_bytes(bytes);
  };
  const auto share = [&t](int64_t size) { return Share(t.parameters(), size, t.ranks()); };
  const int64_t size = SizeOf(static_cast<DType>(plan.decisions().original_dtype()));
  const int64_t moments = MomentSize(plan);
  // The textbook's 16 bytes are 2 + 4 of weights, 2 of gradients and 8 of moments.
  term("one copy of the weights, not a 16-bit one beside a 32-bit one", share(size) - share(6));
  term("gradients in the dtype of the shards, not in 16 bits", share(size) - share(2));
  term("gradients not reduced yet at the peak", std::min<int64_t>(s.gradients - share(size), 0));
  term("moments of the optimizer in another dtype, one or none", share(moments) - share(8));
  term("step counters of the optimizer", s.counters);
  const bool in_8_bits = plan.decisions().optimizer() == pb::ADAMW_8BIT;
  const int64_t beside_codes = in_8_bits ? s.moments - share(moments) : 0;
  term("8-bit moments: their scales and tables, and small tensors in full", beside_codes);
  term("uneven shards: padding, and rank 0's larger part",
       (s.shards - share(size)) + std::max<int64_t>(s.gradients - share(size), 0) +
           (s.moments - share(moments) - beside_codes) +
           (share(6) + share(2) + share(8) - t.persistent_bytes()));
  const int64_t u = 2 * t.unit_parameters();
  term("units in use: their size at the peak against 2 U", s.in_use - u);
  term("gather on its way: its size at the peak against 2 U", s.arriving - u * t.gathered_ahead());
  term("gather outputs already copied out", s.copied);
  term("units kept gathered, as the root", s.kept);
  term("parts of gathered units that are kept after forward", s.parts);
  term("low-precision shards on their way into a gather", s.cast);
  term("whole gradients, not reduced yet", s.full_gradients);
  term("inputs of reductions", s.reduce_inputs);
  term("outputs of reductions", s.reduce_outputs);
  term("kept on the host instead", -s.on_host);
}

}  // namespace

void FillTextbook(const pb::Plan& plan, pb::Report& report) {
  pb::Textbook& textbook = *report.mutable_textbook();
  textbook.Clear();
  FillForms(plan, textbook);
  const PeakFinder peak(plan);
  textbook.set_managed_peak_bytes(peak.bytes());
  FillDifference(plan, SumsOf(plan, peak.held()), textbook);
}

}  // namespace foreshard
