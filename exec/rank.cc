#include "exec/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "exec/convert.h"
#include "exec/module_buffers.h"
#include "exec/random.h"
#include "proto/op_facts.h"

namespace foreshard::exec {
namespace {

// The host goes on to a step while the one before it may still run, not further: so it sees losses
// in time, and memory for inputs does not pile up.
constexpr size_t kStepsAhead = 1;

double ToDouble(std::span<const std::byte> bytes, DType dtype) {
  float value = 0;
  ConvertElements(bytes.data(), dtype, &value, DType::kFp32, 1);
  return value;
}

}  // namespace

RankRunner::RankRunner(const RunContext& context, int rank, const PreparedPlan& prepared,
                       Device& device, Communicator& communicator)
    : context_(context),
      rank_(rank),
      prepared_(prepared),
      device_(device),
      communicator_(communicator),
      blocks_(prepared.buffer_bytes.size()),
      group_ends_(context.plan.groups_size()),
      records_(context.plan.events_size()),
      records_kept_(EventDepths(context.plan)),
      log_(static_cast<int>(context.programs.size()), context.plan.programs_size()) {}

Status RankRunner::Run() {
  RETURN_IF_ERROR(Load());
  for (int step = 0; step < static_cast<int>(context_.programs.size()); ++step) {
    if (pending_.size() > kStepsAhead) RETURN_IF_ERROR(AwaitOldest());
    RETURN_IF_ERROR(RunStep(step));
  }
  while (!pending_.empty()) RETURN_IF_ERROR(AwaitOldest());
  return context_.final_weights != nullptr ? ReadWeights() : OkStatus();
}

// ---- before the first step

Status RankRunner::Load() {
  for (const int buffer : context_.plan.resident()) {
    ASSIGN_OR_RETURN(blocks_[buffer],
                     device_.Allocate(prepared_.buffer_bytes[buffer], PoolOf(buffer)));
  }
  // Zeros where a rank has less than others; several parameters may share a buffer.
  std::map<int, std::vector<int>> parameters;
  for (int p = 0; p < context_.plan.parameters_size(); ++p) {
    parameters[context_.plan.parameters(p).sharded_buffer()].push_back(p);
  }
  for (const auto& [buffer, held] : parameters) {
    std::vector<std::byte> bytes(prepared_.buffer_bytes[buffer]);
    for (const int p : held) RETURN_IF_ERROR(LoadParameter(p, bytes));
    RETURN_IF_ERROR(WriteNow(buffer, std::move(bytes)));
  }
  for (const pb::ModuleBuffer& row : context_.plan.module_buffers()) {
    RETURN_IF_ERROR(LoadModuleBuffer(row));
  }
  return OkStatus();
}

// The rank's part.
Status RankRunner::LoadParameter(int parameter, std::vector<std::byte>& shard) {
  const ShardMap shards(context_.plan, rank_);
  const int64_t local = shards.local_numel(parameter);
  if (local == 0) return OkStatus();
  const DType dtype = shards.dtype(parameter);
  std::vector<float> values(local);
  const ShardMap::Runs runs = shards.LocalRuns(parameter);
  for (int64_t i = 0; i < runs.count; ++i) {
    const std::span<float> run = std::span(values).subspan(i * runs.numel, runs.numel);
    RETURN_IF_ERROR(context_.weights.Fill(parameter, runs.first + i * runs.step, run));
  }
  std::byte* to = shard.data() + shards.local_offset(parameter) * SizeOf(dtype);
  ConvertElements(values.data(), DType::kFp32, to, dtype, local);
  return OkStatus();
}

Status RankRunner::LoadModuleBuffer(const pb::ModuleBuffer& row) {
  std::vector<std::byte> bytes(prepared_.buffer_bytes[row.buffer()]);
  if (row.has_rotary()) {
    const auto dtype = static_cast<DType>(row.dtype());
    const auto numel = static_cast<int64_t>(bytes.size()) / SizeOf(dtype);
    const std::vector<float> values = Frequencies(row.rotary(), numel);
    ConvertElements(values.data(), DType::kFp32, bytes.data(), dtype, numel);
  }
  return WriteNow(row.buffer(), std::move(bytes));
}

Status RankRunner::WriteNow(int buffer, std::vector<std::byte> bytes) {
  loading_ = std::move(bytes);
  device_.Write(StreamOf(buffer), blocks_[buffer], loading_);
  return device_.Synchronize(device_.Record(StreamOf(buffer)));
}

// ---- a step

Status RankRunner::RunStep(int step) {
  std::vector<Event*> kept;
  for (const auto& records : records_) kept.insert(kept.end(), records.begin(), records.end());
  device_.BeginStep(kept);
  step_ = step;
  micro_batch_ = -1;
  for (GroupEnd& end : group_ends_) {
    if (end.step + static_cast<int>(kStepsAhead) < step) end.event = nullptr;  // has been awaited
  }
  pending_.emplace_back();
  const int program = context_.programs[step];
  log_.BeginStep(step, program, device_.Now());
  instance_.step = step;
  instance_.program = run::ProgramId{program};
  for (const pb::SegmentUse& use : context_.plan.programs(program).uses()) {
    for (int repetition = 0; repetition < use.repeat(); ++repetition) {
      RETURN_IF_ERROR(RunSegment(use.segment(), repetition));
    }
  }
  for (int stream = 0; stream < context_.plan.streams_size(); ++stream) {
    pending_.back().ends.push_back(device_.Record(stream));
  }
  return OkStatus();
}

Status RankRunner::RunSegment(int segment, int repetition) {
  const PreparedSegment& prepared = prepared_.segments[segment];
  std::vector<Event*> events(prepared.ops.size(), nullptr);
  int first = 0;
  for (int s = 0; s < segment; ++s) first += static_cast<int>(prepared_.segments[s].ops.size());
  instance_.segment = run::SegmentId{segment};
  instance_.repetition = repetition;
  for (size_t i = 0; i < prepared.ops.size(); ++i) {
    instance_.position = static_cast<int32_t>(i);
    instance_.op = run::OpId{first + instance_.position};
    RETURN_IF_ERROR(Issue(prepared.ops[i], events));
    ++instance_.sequence;
  }
  return OkStatus();
}

Status RankRunner::Issue(const PreparedOp& op, std::vector<Event*>& events) {
  for (const int wait : op.host_waits) RETURN_IF_ERROR(device_.Synchronize(events[wait]));
  for (const RecordWait& wait : op.event_waits) RETURN_IF_ERROR(AwaitRecord(wait, op));
  if (op.reads_input && MicroBatchOf(op) != micro_batch_) {
    RETURN_IF_ERROR(FeedInputs(MicroBatchOf(op)));
  }
  OpLog* log = log_.AddOp(instance_, device_.Now());
  for (const int buffer : op.allocs) {
    ASSIGN_OR_RETURN(blocks_[buffer],
                     device_.Allocate(prepared_.buffer_bytes[buffer], PoolOf(buffer)));
  }
  for (const int wait : op.waits) device_.Wait(op.stream, events[wait]);
  for (const int stream : op.awaited_streams) device_.Wait(op.stream, device_.Record(stream));
  if (log != nullptr) log->issued = device_.Now();
  if (op.stream != kNoStream) {
    RETURN_IF_ERROR(Launch(op, log != nullptr ? &log->span : nullptr));
    if (op.is_awaited) events[instance_.position] = device_.Record(op.stream);
  }
  for (const int buffer : op.frees) RETURN_IF_ERROR(FreeBuffer(buffer, op));
  if (op.record != kNoEvent) Record(op.record, op.record_stream);
  if (log != nullptr) {
    log->device_bytes = device_.device_bytes();
    log->host_bytes = device_.host_bytes();
  }
  return OkStatus();
}

Status RankRunner::AwaitRecord(const RecordWait& wait, const PreparedOp& op) {
  const std::deque<Event*>& records = records_[wait.event];
  if (static_cast<size_t>(wait.back) < records.size()) {
    return device_.Synchronize(records[wait.back]);
  }
  return InvalidPlan(
      fmt::format("{} waits for record {} back of event {}, which has been recorded "
                  "{} times",
                  op.place, wait.back, wait.event, records.size()));
}

void RankRunner::Record(int event, int stream) {
  if (records_kept_[event] == 0) return;  // nobody waits for any
  std::deque<Event*>& records = records_[event];
  records.push_front(device_.Record(stream));
  if (records.size() > static_cast<size_t>(records_kept_[event])) records.pop_back();
}

Status RankRunner::FreeBuffer(int buffer, const PreparedOp& op) {
  ASSIGN_OR_RETURN(const Block block, Find(buffer, op));
  const auto& users = context_.plan.buffers(buffer).recorded_on();
  device_.Free(block, PoolOf(buffer), {users.data(), static_cast<size_t>(users.size())});
  blocks_[buffer] = {};
  return OkStatus();
}

StatusOr<Block> RankRunner::Find(int buffer, const PreparedOp& op) const {
  if (blocks_[buffer].data != nullptr) return blocks_[buffer];
  return InvalidPlan(fmt::format("{} uses buffer {}, which is not alive", op.place, buffer));
}

StatusOr<std::vector<Block>> RankRunner::FindAll(const std::vector<int>& buffers,
                                                 const PreparedOp& op) const {
  std::vector<Block> blocks;
  for (const int buffer : buffers) {
    ASSIGN_OR_RETURN(blocks.emplace_back(), Find(buffer, op));
  }
  return blocks;
}

Status RankRunner::Launch(const PreparedOp& op, TimeSpan* span) {
  exec::Launch launch;
  launch.op = &op;
  launch.span = span;
  ASSIGN_OR_RETURN(launch.in, FindAll(op.in, op));
  ASSIGN_OR_RETURN(launch.out, FindAll(op.out, op));
  ASSIGN_OR_RETURN(launch.scratch, FindAll(op.scratch, op));
  if (op.random != kNoRandom) {
    launch.random =
        RandomKey({context_.seed, static_cast<uint64_t>(step_), static_cast<uint64_t>(rank_),
                   static_cast<uint64_t>(MicroBatchOf(op)), static_cast<uint64_t>(op.random)});
  }
  const auto* update = std::get_if<UpdateParameters>(&op.work);
  if (update != nullptr) ReadGradients(op);
  if (std::holds_alternative<MeasureGradients>(op.work) ||
      (update != nullptr && update->counts_norm)) {
    launch.squared_norm = &pending_.back().squared_norm;
    pending_.back().has_norm = true;
  }
  if (op.group < 0) {
    device_.Run(op.stream, launch);
    if (op.writes_loss) ReadLoss(op);
    return OkStatus();
  }
  // Collectives of a group run one after the other, whatever their streams.
  GroupEnd& last = group_ends_[op.group];
  if (last.stream != op.stream) device_.Wait(op.stream, last.event);
  communicator_.Run(device_, op.stream, launch);
  last = {device_.Record(op.stream), op.stream, step_};
  return OkStatus();
}

// ---- what the host puts in and takes out

Status RankRunner::FeedInputs(int micro_batch) {
  micro_batch_ = micro_batch;
  const DataPlace place{step_, rank_, micro_batch};
  for (int i = 0; i < context_.plan.inputs_size(); ++i) {
    const pb::Input& input = context_.plan.inputs(i);
    const auto dtype = static_cast<DType>(input.dtype());
    std::vector<std::byte>& bytes = pending_.back().fed.emplace_back();
    bytes.resize(prepared_.buffer_bytes[input.buffer()]);
    const auto numel = bytes.size() / SizeOf(dtype);
    if (dtype == DType::kInt64) {
      std::vector<int64_t> values(numel);
      RETURN_IF_ERROR(context_.data.Fill(i, place, values));
      std::memcpy(bytes.data(), values.data(), bytes.size());
    } else {
      std::vector<float> values(numel);
      RETURN_IF_ERROR(context_.data.Fill(i, place, values));
      ConvertElements(values.data(), DType::kFp32, bytes.data(), dtype,
                      static_cast<int64_t>(numel));
    }
    device_.Write(StreamOf(input.buffer()), blocks_[input.buffer()], bytes);
  }
  return OkStatus();
}

void RankRunner::ReadLoss(const PreparedOp& op) {
  const auto& kernel = prepared_.kernels[std::get<RunKernel>(op.work).kernel];
  const auto& losses = context_.plan.losses();
  const auto found = std::ranges::find_first_of(op.out, losses);
  const auto result = found - op.out.begin();
  Pending& step = pending_.back();
  const Block& loss = blocks_[*found];
  step.loss_types.push_back(kernel.out[result].dtype);
  step.losses.emplace_back(loss.bytes);
  device_.Read(op.stream, loss, step.losses.back());
}

void RankRunner::ReadGradients(const PreparedOp& op) {
  const bool is_last = step_ + 1 == static_cast<int>(context_.programs.size());
  const ShardMap shards(context_.plan, rank_);
  if (context_.last_gradients == nullptr || !is_last || !IsFirstReplica()) return;
  const std::vector<int> trainable = shards.Trainable();
  const auto& slices = std::get<UpdateParameters>(op.work).gradients;
  for (size_t i = 0; i < slices.size(); ++i) {
    const GradientSlice& slice = slices[i];
    const int64_t size = SizeOf(slice.dtype);
    const Block& gradient = blocks_[op.in[slice.gradient]];
    const Block part{gradient.data + slice.gradient_from * size, slice.numel * size};
    ReadShard(op.stream, shards, trainable[i], part, (*context_.last_gradients)[i]);
  }
}

// This rank's part of a whole tensor.
void RankRunner::ReadShard(int stream, const ShardMap& shards, int parameter, const Block& shard,
                           std::vector<std::byte>& whole) {
  if (shards.local_numel(parameter) == 0) return;
  const ShardMap::Runs runs = shards.LocalRuns(parameter);
  const int64_t size = SizeOf(shards.dtype(parameter));
  const int64_t bytes = runs.numel * size;
  for (int64_t i = 0; i < runs.count; ++i) {
    device_.Read(stream, {shard.data + i * bytes, bytes},
                 {whole.data() + (runs.first + i * runs.step) * size, static_cast<size_t>(bytes)});
  }
}

Status RankRunner::AwaitOldest() {
  Pending& step = pending_.front();
  for (Event* end : step.ends) RETURN_IF_ERROR(device_.Synchronize(end));
  RankStep result;
  for (size_t i = 0; i < step.losses.size(); ++i) {
    result.losses.push_back(ToDouble(step.losses[i], step.loss_types[i]));
  }
  result.squared_norm = step.squared_norm;
  result.has_norm = step.has_norm;
  context_.scoreboard.Put(awaited_steps_++, rank_, std::move(result));
  pending_.pop_front();
  return OkStatus();
}

Status RankRunner::ReadWeights() {
  if (!IsFirstReplica()) return OkStatus();
  const ShardMap shards(context_.plan, rank_);
  for (int p = 0; p < context_.plan.parameters_size(); ++p) {
    const int buffer = context_.plan.parameters(p).sharded_buffer();
    const Block& shard = blocks_[buffer];
    const int64_t first = shards.local_offset(p) * SizeOf(shards.dtype(p));
    ReadShard(StreamOf(buffer), shards, p, {shard.data + first, shard.bytes - first},
              (*context_.final_weights)[p]);
    RETURN_IF_ERROR(device_.Synchronize(device_.Record(StreamOf(buffer))));
  }
  return OkStatus();
}

}  // namespace foreshard::exec
