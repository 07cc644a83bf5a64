#include "tests/testing/one_rank.h"

#include <algorithm>

#include "exec/convert.h"
#include "exec/cpu/update.h"
#include "exec/module_buffers.h"
#include "exec/random.h"

namespace foreshard {
namespace {

DType TypeOf(const pb::Parameter& p) { return static_cast<DType>(p.dtype()); }

int64_t NumelOf(const pb::Parameter& p) {
  int64_t numel = 1;
  for (const int64_t d : p.shape()) numel *= d;
  return numel;
}

std::vector<std::byte> Cast(const std::vector<std::byte>& from, DType from_dtype, DType to) {
  const int64_t numel = static_cast<int64_t>(from.size()) / SizeOf(from_dtype);
  std::vector<std::byte> result(numel * SizeOf(to));
  exec::ConvertElements(from.data(), from_dtype, result.data(), to, numel);
  return result;
}

std::vector<float> Floats(const std::vector<std::byte>& from, DType dtype) {
  std::vector<float> result(from.size() / SizeOf(dtype));
  exec::ConvertElements(from.data(), dtype, result.data(), DType::kFp32,
                        static_cast<int64_t>(result.size()));
  return result;
}

const pb::Segment& SegmentNamed(const pb::Plan& plan, const std::string& name) {
  for (const pb::Segment& segment : plan.segments()) {
    if (segment.name() == name) return segment;
  }
  CHECK(false) << "no segment " << name;
  return plan.segments(0);
}

DType ReduceTypeOf(const pb::Plan& plan) {
  for (const pb::Op& op : SegmentNamed(plan, "step").ops()) {
    if (op.has_reduce_copy_in()) return static_cast<DType>(op.reduce_copy_in().to());
  }
  CHECK(false) << "nothing is reduced";
  return DType::kFp32;
}

}  // namespace

OneRankReference::OneRankReference(const pb::Plan& plan, const PlanRequest& request, uint64_t seed,
                                   const exec::WeightSource& weights, const exec::DataSource& data)
    : plan_(plan),
      ranks_(request.world_size),
      rules_(RulesOf(request, ReduceTypeOf(plan))),
      seed_(seed),
      data_(data),
      runner_(plan) {
  CHECK_EQ(plan.mesh().world_size(), 1);
  for (int i = 0; i < plan.parameters_size(); ++i) {
    const pb::Parameter& p = plan.parameters(i);
    std::vector<float> values(NumelOf(p));
    CHECK(weights.Fill(i, 0, values).ok());
    std::vector<std::byte>& bytes = weights_.emplace_back(values.size() * SizeOf(TypeOf(p)));
    exec::ConvertElements(values.data(), DType::kFp32, bytes.data(), TypeOf(p), NumelOf(p));
    parameter_of_[p.sharded_buffer()] = i;
  }
  gradients_.resize(weights_.size());
  for (int p = 0; p < plan.parameters_size(); ++p) {
    if (!plan.parameters(p).frozen()) sums_[p] = ReducedGradient(rules_);
  }
  for (const pb::ModuleBuffer& row : plan.module_buffers()) {
    const std::span<float> values = runner_.values<float>(row.buffer());
    std::ranges::copy(exec::Frequencies(row.rotary(), static_cast<int64_t>(values.size())),
                      values.begin());
  }
}

std::vector<double> OneRankReference::Step() {
  std::vector<double> losses;
  for (int micro_batch = 0; micro_batch < rules_.micro_batches; ++micro_batch) {
    double sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      runner_.SetRandomKey(
          exec::RandomKey({seed_, static_cast<uint64_t>(step_), static_cast<uint64_t>(rank),
                           static_cast<uint64_t>(micro_batch)}));
      Feed(rank, micro_batch);
      RunMicroBatch(rank);
      sum += loss_;
    }
    for (auto& [parameter, gradient] : sums_) gradient.EndMicroBatch(micro_batch);
    losses.push_back(sum / ranks_);
  }
  for (auto& [parameter, gradient] : sums_) gradients_[parameter] = gradient.Take();
  Update();
  ++step_;
  return losses;
}

void OneRankReference::Feed(int rank, int micro_batch) {
  for (int i = 0; i < plan_.inputs_size(); ++i) {
    const pb::Input& input = plan_.inputs(i);
    const exec::DataPlace place{step_, rank, micro_batch};
    if (input.dtype() == pb::INT64) {
      CHECK(data_.Fill(i, place, runner_.values<int64_t>(input.buffer())).ok());
      continue;
    }
    const auto dtype = static_cast<DType>(input.dtype());
    const std::span<std::byte> bytes = runner_.bytes(input.buffer());
    std::vector<float> values(bytes.size() / SizeOf(dtype));
    CHECK(data_.Fill(i, place, std::span<float>(values)).ok());
    exec::ConvertElements(values.data(), DType::kFp32, bytes.data(), dtype,
                          static_cast<int64_t>(values.size()));
  }
}

void OneRankReference::RunMicroBatch(int rank) {
  const pb::Segment& segment = SegmentNamed(plan_, "step");
  for (int i = 0; i < segment.ops_size(); ++i) {
    const pb::Op& op = segment.ops(i);
    if (op.has_compute()) {
      runner_.Run(segment, i, i + 1);
      if (std::ranges::find(op.out(), plan_.losses(0)) == op.out().end()) continue;
      const auto dtype =
          static_cast<DType>(plan_.kernels(op.compute().kernel()).results(0).dtype());
      const std::span<std::byte> bytes = runner_.bytes(plan_.losses(0));
      loss_ = Floats({bytes.begin(), bytes.end()}, dtype)[0];
      continue;
    }
    if (op.has_cast_shard()) parameter_of_[op.out(0)] = parameter_of_.at(op.in(0));
    if (op.has_local_gather()) Gather(op);
    if (op.has_reduce_copy_in()) Collect(op, rank);
  }
}

// The whole parameter, as the kernels want it.
void OneRankReference::Gather(const pb::Op& op) {
  const int p = parameter_of_.at(op.in(0));
  const auto dtype = static_cast<DType>(op.local_gather().dtype());
  const std::vector<std::byte> bytes = Cast(weights_[p], TypeOf(plan_.parameters(p)), dtype);
  CHECK_EQ(bytes.size(), runner_.bytes(op.out(0)).size());
  std::ranges::copy(bytes, runner_.bytes(op.out(0)).begin());
}

// The gradients of a unit, of one rank's micro-batch.
void OneRankReference::Collect(const pb::Op& op, int rank) {
  int next = 0;
  for (const int p : plan_.units(op.unit()).parameters()) {
    if (plan_.parameters(p).frozen()) continue;
    const auto from = static_cast<DType>(op.reduce_copy_in().from(next));
    const std::span<std::byte> bytes = runner_.bytes(op.in(next++));
    sums_.at(p).Add(rank, Floats({bytes.begin(), bytes.end()}, from), from);
  }
}

// The plan's own update on whole tensors, with a gradient buffer for each.
void OneRankReference::Update() {
  const pb::Segment& segment = SegmentNamed(plan_, "optimizer");
  if (!segment.ops(0).has_optimizer_step()) return;
  const auto prepared = exec::Prepare(plan_, 0);
  CHECK(prepared.ok()) << prepared.status().message();
  int index = 0;
  while (SegmentNamed(plan_, plan_.segments(index).name()).name() != "optimizer") ++index;
  auto update = std::get<exec::UpdateParameters>(prepared->segments[index].ops[0].work);
  update.keeps_roots = false;  // a place in memory, no mathematics
  exec::Launch launch;
  std::vector<int> trainable;
  for (int p = 0; p < plan_.parameters_size(); ++p) {
    if (!plan_.parameters(p).frozen()) trainable.push_back(p);
  }
  const auto block = [](std::vector<std::byte>& bytes) {
    return exec::Block{bytes.data(), static_cast<int64_t>(bytes.size())};
  };
  for (size_t i = 0; i < trainable.size(); ++i) {
    launch.in.push_back(block(gradients_[trainable[i]]));
    launch.out.push_back(block(weights_[trainable[i]]));
    update.slices[i].gradient = static_cast<int>(i);
    update.slices[i].gradient_from = 0;
  }
  if (state_.empty()) {
    for (const pb::Buffer& buffer : plan_.buffers()) {
      if (buffer.category() == pb::OPTIMIZER_STATE) state_.emplace_back(buffer.bytes());
    }
  }
  for (std::vector<std::byte>& bytes : state_) launch.out.push_back(block(bytes));
  exec::Update(update, launch);
}

}  // namespace foreshard
