#include "planner/lower/ddp.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/lower/shard_ops.h"

namespace foreshard {
namespace {

constexpr int kUnit = 0;  // all parameters are in one

}  // namespace

Ddp::Ddp(Eager& eager, const ModelGraph& graph, std::vector<UnitLayout> layouts,
         const Sharding& sharding, const pb::DdpOptions& options)
    : eager_(eager),
      builder_(eager.builder()),
      layouts_(std::move(layouts)),
      sharding_(sharding),
      options_(options),
      parameters_(graph.parameters.size()),
      gradients_(graph.parameters.size()),
      places_(graph.parameters.size()) {
  CHECK_EQ(layouts_.size(), 1u);
  for (const ShardedParameter& p : layouts_[kUnit].parameters) {
    Tensor t = eager.External(p.shard, sharding.original, graph.parameters[p.parameter].shape);
    if (!p.frozen) eager.MakeLeaf(t, p.parameter);
    parameters_[p.parameter] = std::move(t);
  }
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    if (!graph.parameters[i].frozen) trainable_.push_back(static_cast<int>(i));
  }
}

std::string Ddp::State() const {
  std::string state = rebuilt_ ? "rebuilt" : arrived_.empty() ? "initial" : "ordered";
  const GradientState& any = gradients_[trainable_[0]];
  if (any.is_view) return state + ", views";
  return any.own ? state + ", gradients" : state;
}

void Ddp::BeginMicroBatch(const BackwardRules& rules) {
  backward_ = rules;
  if (buckets_.empty()) {
    // All gradients in one bucket, as nobody knows yet in which order they come.
    MakeBuckets(trainable_, {std::numeric_limits<int64_t>::max()});
    AllocateBuckets();
  } else if (!rebuilt_ && !arrived_.empty()) {
    RebuildBuckets();
  }
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = static_cast<int>(bucket.parameters.size());
}

void Ddp::EndStep() {
  for (GradientState& g : gradients_) g = {};
}

// ---- buckets

// A bucket is full once it has its limit or more; the last limit holds for all further ones.
void Ddp::MakeBuckets(const std::vector<int>& order, const std::vector<int64_t>& limits) {
  buckets_.assign(1, {});
  int64_t numel = 0;
  for (const int parameter : order) {
    const size_t limit = std::min(buckets_.size(), limits.size()) - 1;
    if (numel * SizeOf(sharding_.original) >= limits[limit]) {
      buckets_.emplace_back();
      numel = 0;
    }
    places_[parameter] = {static_cast<int>(buckets_.size()) - 1, numel};
    buckets_.back().parameters.push_back(parameter);
    numel += Numel(parameter);
  }
}

int64_t Ddp::Numel(const Bucket& bucket) const {
  const int last = bucket.parameters.back();
  return places_[last].offset + Numel(last);
}

void Ddp::AllocateBuckets() {
  builder_.SetUnit(kUnit);
  for (Bucket& bucket : buckets_) {
    bucket.buffer = builder_.Allocate(Numel(bucket) * SizeOf(sharding_.original), pb::BUCKET,
                                      sharding_.streams.compute);
  }
  builder_.Issue(kHost, {}, {}).mutable_release();
  builder_.SetUnit(-1);
}

// Once, before the forward after the first reduction. Old buckets go first unless gradients are
// still in them.
void Ddp::RebuildBuckets() {
  const std::vector<Bucket> old = std::move(buckets_);
  const std::vector<Place> places = places_;
  rebuilt_ = true;
  MakeBuckets(arrived_, {options_.first_bucket_bytes(), options_.bucket_bytes()});
  if (gradients_[trainable_[0]].is_view) {
    AllocateBuckets();
    MoveViews(old, places);
  } else {
    builder_.SetUnit(kUnit);
    builder_.Issue(kHost, {}, {}).mutable_release();
  }
  for (const Bucket& bucket : old) builder_.Free(bucket.buffer);
  if (buckets_[0].buffer < 0) AllocateBuckets();
}

void Ddp::MoveViews(const std::vector<Bucket>& old, const std::vector<Place>& places) {
  builder_.SetUnit(kUnit);
  for (const int parameter : arrived_) {
    Copy(parameter, {old[places[parameter].bucket].buffer}, {places[parameter].offset}, 1);
  }
  builder_.SetUnit(-1);
}

// ---- backward

void Ddp::ParameterGradient(int parameter, Tensor gradient, bool summed) {
  const int module = builder_.module();
  GradientState& g = gradients_[parameter];
  const bool accumulates = g.is_view || g.own;
  if (accumulates && !g.is_view) eager_.Launch("add_", {&g.own, &gradient}, {&g.own});
  if (!accumulates) {
    CountAsGradient(builder_, eager_.buffer(gradient), kUnit, summed);
    g.own = gradient;
  }
  if (backward_.reduces) {
    if (!rebuilt_) arrived_.push_back(parameter);
    CopyIn(parameter, gradient);
    ReduceComplete();
  }
  builder_.SetModule(module);
}

// Gradients are divided on their way in, so that a sum is their mean.
void Ddp::CopyIn(int parameter, const Tensor& gradient) {
  GradientState& g = gradients_[parameter];
  Bucket& bucket = buckets_[places_[parameter].bucket];
  const double factor = 1.0 / sharding_.replicas;
  builder_.SetUnit(kUnit);
  if (g.is_view) {
    const BufferId arrived = eager_.buffer(gradient);
    Copy(parameter, {arrived, bucket.buffer}, {0, places_[parameter].offset}, factor)
        .set_accumulate(true);
  } else {
    Copy(parameter, {eager_.buffer(g.own)}, {0}, factor);
  }
  --bucket.missing;
  if (!options_.gradient_as_bucket_view()) return;
  g.own.reset();
  g.is_view = true;
}

pb::BucketCopyIn& Ddp::Copy(int parameter, std::initializer_list<BufferId> in,
                            std::initializer_list<int64_t> offsets, double factor) {
  const Place& place = places_[parameter];
  pb::Op& op = builder_.Issue(sharding_.streams.compute, in, {buckets_[place.bucket].buffer});
  builder_.AddVersions(op);
  if (std::ranges::any_of(offsets, [](int64_t offset) { return offset != 0; })) {
    op.mutable_in_offsets()->Add(offsets.begin(), offsets.end());
  }
  pb::BucketCopyIn& copy = *op.mutable_bucket_copy_in();
  copy.set_parameter(parameter);
  copy.set_elems(Numel(parameter));
  copy.set_offset(place.offset);
  copy.set_factor(factor);
  copy.set_dtype(ToProto(sharding_.original));
  return copy;
}

// Buckets are reduced in order, each when it and all before it are complete.
void Ddp::ReduceComplete() {
  const Streams& streams = sharding_.streams;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    Bucket& bucket = buckets_[next_bucket_++];
    builder_.WaitBeforeNext(streams.all_reduce, builder_.last_op());
    AllReduceInPlace(builder_, bucket.buffer, Numel(bucket), sharding_.original,
                     sharding_.replicate_group, pb::ReduceScatter::SUM, streams.all_reduce);
    bucket.reduced = builder_.last_op();
  }
}

void Ddp::AtEnd() {
  if (!backward_.reduces) return;
  CHECK_EQ(next_bucket_, buckets_.size());
  builder_.SetUnit(kUnit);
  if (options_.gradient_as_bucket_view()) {
    pb::Op& wait = builder_.Issue(sharding_.streams.compute, {}, {});
    wait.mutable_stream_wait()->add_on(sharding_.streams.all_reduce);
  } else {
    for (const Bucket& bucket : buckets_) CopyOut(bucket);
  }
  builder_.SetUnit(-1);
  LeaveGradients();
}

void Ddp::CopyOut(const Bucket& bucket) {
  builder_.WaitBeforeNext(sharding_.streams.compute, bucket.reduced);
  for (const int parameter : bucket.parameters) {
    pb::Op& op = builder_.Issue(sharding_.streams.compute, {bucket.buffer},
                                {eager_.buffer(gradients_[parameter].own)});
    pb::BucketCopyOut& copy = *op.mutable_bucket_copy_out();
    copy.set_parameter(parameter);
    copy.set_elems(Numel(parameter));
    copy.set_offset(places_[parameter].offset);
    copy.set_dtype(ToProto(sharding_.original));
  }
}

void Ddp::LeaveGradients() {
  left_.clear();
  for (const int parameter : trainable_) {
    const GradientState& g = gradients_[parameter];
    const Place& place = places_[parameter];
    if (g.is_view) {
      left_.push_back({kUnit, buckets_[place.bucket].buffer, parameter, place.offset});
    } else {
      left_.push_back({kUnit, eager_.Disown(g.own), parameter, 0});
    }
  }
}

}  // namespace foreshard
