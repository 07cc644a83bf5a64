#include "exec/cpu/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "exec/convert.h"
#include "exec/cpu/chunk.h"
#include "exec/cpu/device.h"
#include "exec/cpu/sanitizers.h"
#include "proto/base/check.h"

namespace foreshard::exec {
namespace {

std::string Describe(const Launch& launch) {
  const PreparedOp& op = *launch.op;
  if (const auto* g = std::get_if<GatherSlices>(&op.work)) {
    return fmt::format("a gather of {} {} a rank at {}", g->slice, Name(g->dtype), op.place);
  }
  if (const auto* r = std::get_if<ReduceInPlace>(&op.work)) {
    return fmt::format("a {} of {} {} for all at {}", r->average ? "mean" : "sum", r->numel,
                       Name(r->dtype), op.place);
  }
  if (const auto* s = std::get_if<SendToAll>(&op.work)) {
    return fmt::format("{} {} from member {} at {}", s->numel, Name(s->dtype), s->root, op.place);
  }
  const auto& r = std::get<ReduceSlices>(op.work);
  const std::string times = r.factor == 1 ? "" : fmt::format(" times {}", r.factor);
  return fmt::format("a {} of {} {}{} a rank at {}", r.average ? "mean" : "sum", r.slice,
                     Name(r.dtype), times, op.place);
}

// Whether two members mean the same collective.
bool Agree(const PreparedOp& a, const PreparedOp& b) {
  if (a.work.index() != b.work.index() || a.place != b.place) return false;
  if (const auto* g = std::get_if<GatherSlices>(&a.work)) {
    const auto& other = std::get<GatherSlices>(b.work);
    return g->slice == other.slice && g->dtype == other.dtype &&
           g->is_in_place == other.is_in_place;
  }
  if (const auto* r = std::get_if<ReduceInPlace>(&a.work)) {
    const auto& other = std::get<ReduceInPlace>(b.work);
    return r->numel == other.numel && r->dtype == other.dtype && r->average == other.average;
  }
  if (const auto* s = std::get_if<SendToAll>(&a.work)) {
    const auto& other = std::get<SendToAll>(b.work);
    return s->numel == other.numel && s->dtype == other.dtype && s->root == other.root;
  }
  const auto& r = std::get<ReduceSlices>(a.work);
  const auto& other = std::get<ReduceSlices>(b.work);
  return r.slice == other.slice && r.dtype == other.dtype && r.average == other.average &&
         r.factor == other.factor;
}

// Every rank's slice into this rank's output, where its own may stand already.
void Gather(const GatherSlices& gather, int member, std::span<const Launch* const> all) {
  const int64_t bytes = gather.slice * SizeOf(gather.dtype);
  std::byte* out = all[member]->out[0].data;
  for (int peer = 0; peer < static_cast<int>(all.size()); ++peer) {
    if (peer == member && gather.is_in_place) continue;
    const std::byte* theirs =
        gather.is_in_place ? all[peer]->out[0].data + peer * bytes : all[peer]->in[0].data;
    sanitizers::AnnounceRead(theirs, bytes);
    sanitizers::AnnounceWrite(out + peer * bytes, bytes);
    std::memcpy(out + peer * bytes, theirs, bytes);
  }
}

void Send(const SendToAll& send, int member, std::span<const Launch* const> all) {
  if (member == send.root) return;
  const int64_t bytes = send.numel * SizeOf(send.dtype);
  const std::byte* theirs = all[send.root]->out[0].data;
  std::byte* out = all[member]->out[0].data;
  sanitizers::AnnounceRead(theirs, bytes);
  sanitizers::AnnounceWrite(out, bytes);
  std::memcpy(out, theirs, bytes);
}

// What becomes of the ranks' parts of a sum.
struct Sum {
  DType dtype = DType::kFp32;
  bool average = false;
  float factor = 1;
};

// The sum of `n` elements over the ranks in their order, each times the factor, in fp32, divided
// where a mean is asked for. `from` has the rank's part, `n` <= kChunk.
void AddUp(const Sum& what, std::span<std::byte* const> from, int64_t n, float* sum) {
  float addend[kChunk];
  for (size_t peer = 0; peer < from.size(); ++peer) {
    float* part = peer == 0 ? sum : addend;
    ConvertElements(from[peer], what.dtype, part, DType::kFp32, n);
    for (int64_t i = 0; what.factor != 1 && i < n; ++i) part[i] *= what.factor;
    for (int64_t i = 0; peer > 0 && i < n; ++i) sum[i] += addend[i];
  }
  const auto ranks = static_cast<float>(from.size());
  for (int64_t i = 0; what.average && i < n; ++i) sum[i] /= ranks;
}

void Reduce(const ReduceSlices& reduce, int member, std::span<const Launch* const> all) {
  const int64_t size = SizeOf(reduce.dtype);
  for (const Launch* peer : all) sanitizers::AnnounceRead(peer->in[0].data, peer->in[0].bytes);
  sanitizers::AnnounceWrite(all[member]->out[0].data, all[member]->out[0].bytes);
  std::vector<std::byte*> from(all.size());
  float sum[kChunk];
  for (int64_t begin = 0; begin < reduce.slice; begin += kChunk) {
    const int64_t n = std::min(kChunk, reduce.slice - begin);
    for (size_t peer = 0; peer < all.size(); ++peer) {
      from[peer] = all[peer]->in[0].data + (member * reduce.slice + begin) * size;
    }
    AddUp({reduce.dtype, reduce.average, static_cast<float>(reduce.factor)}, from, n, sum);
    ConvertElements(sum, DType::kFp32, all[member]->out[0].data + begin * size, reduce.dtype, n);
  }
}

// Each member adds up a part of the elements and writes the sum to everybody, so that nobody reads
// what somebody has written.
void Reduce(const ReduceInPlace& reduce, int member, std::span<const Launch* const> all) {
  const int64_t size = SizeOf(reduce.dtype);
  const auto members = static_cast<int64_t>(all.size());
  const int64_t end = reduce.numel * (member + 1) / members;
  std::vector<std::byte*> parts(all.size());
  float sum[kChunk];
  for (int64_t begin = reduce.numel * member / members; begin < end; begin += kChunk) {
    const int64_t n = std::min(kChunk, end - begin);
    for (size_t peer = 0; peer < all.size(); ++peer) {
      parts[peer] = all[peer]->out[0].data + begin * size;
      sanitizers::AnnounceWrite(parts[peer], n * size);
    }
    AddUp({reduce.dtype, reduce.average}, parts, n, sum);
    for (std::byte* part : parts) ConvertElements(sum, DType::kFp32, part, reduce.dtype, n);
  }
}

}  // namespace

Meeting::Meeting(std::vector<int> ranks, FailureFlag& failure)
    : ranks_(std::move(ranks)),
      failure_(failure),
      launches_(ranks_.size(), nullptr),
      left_(ranks_.size(), false) {}

// Waits until every member has called it as often as this one. Who waits for the beginning of a
// collective gives up when the run fails, and then nobody begins one here any more; who waits for
// the end of one does not, since all that began it are about to come and may still use its memory.
bool Meeting::Gather(int member, bool gives_up) {
  const sanitizers::Hidden hidden;
  std::unique_lock lock(mutex_);
  if (is_broken_) return false;
  const int64_t round = round_;
  if (++arrived_ == static_cast<int>(ranks_.size())) {
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
    return true;
  }
  while (round_ == round) {
    if (gives_up && !IsHopeful(member)) {
      is_broken_ = true;
      return false;
    }
    changed_.wait_for(lock, kFailurePoll);
  }
  return true;
}

// Whether all members may still come.
bool Meeting::IsHopeful(int member) const {
  if (failure_.IsRaised()) return false;
  const auto gone = std::ranges::find(left_, true);
  if (gone == left_.end()) return true;
  const int rank = ranks_[static_cast<size_t>(gone - left_.begin())];
  failure_.Raise(Internal(fmt::format("rank {} ended while rank {} waits for it in {}", rank,
                                      ranks_[member], Describe(*launches_[member]))));
  return false;
}

bool Meeting::AllAgree(int member) const {
  const Launch& mine = *launches_[member];
  for (size_t peer = 0; peer < launches_.size(); ++peer) {
    const Launch& theirs = *launches_[peer];
    if (Agree(*theirs.op, *mine.op)) continue;
    failure_.Raise(
        Internal(fmt::format("collective mismatch: rank {} brings {}, rank {} {}", ranks_[peer],
                             Describe(theirs), ranks_[member], Describe(mine))));
    return false;
  }
  return true;
}

std::vector<const Launch*> Meeting::Begin(int member, const Launch& launch) {
  {
    const sanitizers::Hidden hidden;
    const std::scoped_lock lock(mutex_);
    launches_[member] = &launch;
  }
  sanitizers::Release(&launches_[member]);
  if (!Gather(member, true)) return {};
  for (const auto& entry : launches_) sanitizers::Acquire(&entry);
  std::vector<const Launch*> all;
  {
    const sanitizers::Hidden hidden;
    if (AllAgree(member)) all = launches_;
  }
  if (all.empty()) End(member);  // the others look at this launch, too
  return all;
}

void Meeting::End(int member) {
  sanitizers::Release(&launches_[member]);
  Gather(member, false);
  for (const auto& entry : launches_) sanitizers::Acquire(&entry);
}

void Meeting::Leave(int member) {
  const std::scoped_lock lock(mutex_);
  left_[member] = true;
  changed_.notify_all();
}

CpuWorld::CpuWorld(int ranks, const std::vector<GroupShape>& groups, FailureFlag& failure) {
  for (const GroupShape& shape : groups) {
    std::vector<Seat>& seats = seats_.emplace_back(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const int member = rank / shape.stride % shape.size;
      if (member != 0) {
        seats[rank] = {seats[rank - member * shape.stride].meeting, member};
        continue;
      }
      std::vector<int> members;
      for (int i = 0; i < shape.size; ++i) members.push_back(rank + i * shape.stride);
      meetings_.push_back(std::make_unique<Meeting>(std::move(members), failure));
      seats[rank] = {meetings_.back().get(), 0};
    }
  }
}

void CpuCommunicator::Run(Device& device, int stream, const Launch& launch) {
  auto& cpu = static_cast<CpuDevice&>(device);
  const CpuWorld::Seat seat = world_.Find(rank_, launch.op->group);
  cpu.Push(stream, [&cpu, seat, launch, changes = cpu.TakeChanges(stream, launch)] {
    cpu.Apply(changes);
    if (launch.span != nullptr) launch.span->start = CpuDevice::Clock();
    const std::vector<const Launch*> all = seat.meeting->Begin(seat.member, launch);
    if (all.empty()) return;
    const Work& work = launch.op->work;
    if (const auto* gather = std::get_if<GatherSlices>(&work)) {
      Gather(*gather, seat.member, all);
    } else if (const auto* reduce = std::get_if<ReduceInPlace>(&work)) {
      Reduce(*reduce, seat.member, all);
    } else if (const auto* send = std::get_if<SendToAll>(&work)) {
      Send(*send, seat.member, all);
    } else {
      Reduce(std::get<ReduceSlices>(work), seat.member, all);
    }
    seat.meeting->End(seat.member);
    if (launch.span != nullptr) launch.span->end = CpuDevice::Clock();
  });
}

void CpuCommunicator::Leave() {
  for (int group = 0; group < world_.groups(); ++group) {
    const CpuWorld::Seat seat = world_.Find(rank_, group);
    seat.meeting->Leave(seat.member);
  }
}

}  // namespace foreshard::exec
