#include "exec/cpu/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <semaphore>
#include <thread>
#include <utility>

#include "exec/cpu/clip.h"
#include "exec/cpu/copy_elements.h"
#include "exec/cpu/reduced.h"
#include "exec/cpu/sanitizers.h"
#include "exec/cpu/update.h"
#include "proto/base/check.h"

namespace foreshard::exec {
namespace {

constexpr int kPoison = 0xFF;  // NaN in every floating-point type, -1 in the others

// How many kernels compute at once, over all ranks: more than the machine has cores gain nothing,
// and OpenBLAS has memory for a limited number of callers (64 threads as Debian builds it).
class KernelSlot {
 public:
  KernelSlot() {
    const sanitizers::Hidden hidden;
    Slots().acquire();
  }
  ~KernelSlot() {
    const sanitizers::Hidden hidden;
    Slots().release();
  }
  KernelSlot(const KernelSlot&) = delete;
  KernelSlot& operator=(const KernelSlot&) = delete;

 private:
  static constexpr int kMost = 64;
  static std::counting_semaphore<kMost>& Slots() {
    static std::counting_semaphore<kMost> slots(
        std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMost));
    return slots;
  }
};

void Announce(const Launch& launch) {
  for (const Block& b : launch.in) sanitizers::AnnounceRead(b.data, b.bytes);
  for (const Block& b : launch.out) sanitizers::AnnounceWrite(b.data, b.bytes);
  for (const Block& b : launch.scratch) sanitizers::AnnounceWrite(b.data, b.bytes);
}

}  // namespace

CpuDevice::CpuDevice(const PreparedPlan& plan, int streams, bool poisons, FailureFlag& failure)
    : plan_(plan), poisons_(poisons), failure_(failure), changes_(streams) {
  for (const PreparedKernel& kernel : plan.kernels) {
    kernels_.push_back(FindCpuKernel(kernel.name));
    CHECK(kernels_.back() != nullptr) << "no CPU kernel " << kernel.name;
  }
  for (int i = 0; i < streams; ++i) streams_.push_back(std::make_unique<CpuStream>(failure));
}

CpuDevice::~CpuDevice() { streams_.clear(); }

StatusOr<Block> CpuDevice::Allocate(int64_t bytes, Pool pool) {
  TakeBackBlocks();
  ASSIGN_OR_RETURN(const Block block, memory_.Allocate(bytes, pool));
  changes_[pool.stream].push_back({block, false});
  return block;
}

void CpuDevice::Free(const Block& block, Pool pool, std::span<const int> users) {
  std::vector<const CpuEvent*> uses;
  for (const int stream : users) {
    CpuEvent* event = NewEvent();
    uses.push_back(event);
    Push(stream, [event, data = block.data] {
      sanitizers::Release(data);
      event->Set();
    });
  }
  if (uses.empty()) changes_[pool.stream].push_back({block, true});
  memory_.Free(block, pool, std::move(uses));
}

void CpuDevice::TakeBackBlocks() {
  for (const CpuMemory::Freed& freed : memory_.TakeBack()) {
    changes_[freed.pool.stream].push_back({freed.block, true, true});
  }
}

// All of the stream's own. A block of another stream's that is about to be used there has its
// change with that use, which is the first to be ordered behind its last owner's.
std::vector<CpuDevice::Change> CpuDevice::TakeChanges(int stream, std::span<const Block> used) {
  std::vector<Change> taken = std::exchange(changes_[stream], {});
  for (std::vector<Change>& others : changes_) {
    if (others.empty()) continue;
    for (const Block& block : used) {
      std::erase_if(others, [&](const Change& c) {
        if (c.block.data != block.data) return false;
        if (!c.is_freed) taken.push_back(c);
        return true;
      });
    }
  }
  return taken;
}

std::vector<CpuDevice::Change> CpuDevice::TakeChanges(int stream, const Launch& launch) {
  std::vector<Block> used = launch.in;
  used.insert(used.end(), launch.out.begin(), launch.out.end());
  used.insert(used.end(), launch.scratch.begin(), launch.scratch.end());
  return TakeChanges(stream, used);
}

void CpuDevice::Apply(const std::vector<Change>& changes) const {
  for (const Change& change : changes) {
    const Block& block = change.block;
    if (change.had_users) sanitizers::Acquire(block.data);
    sanitizers::Permit(block.data, block.bytes);
    sanitizers::AnnounceWrite(block.data, block.bytes);
    if (poisons_) std::memset(block.data, kPoison, block.bytes);
    if (change.is_freed) sanitizers::Forbid(block.data, block.bytes);
  }
}

void CpuDevice::Run(int stream, const Launch& launch) {
  Push(stream, [this, launch, changes = TakeChanges(stream, launch)] {
    Apply(changes);
    if (launch.span != nullptr) launch.span->start = Clock();
    Announce(launch);
    Execute(launch);
    if (launch.span != nullptr) launch.span->end = Clock();
  });
}

void CpuDevice::Execute(const Launch& launch) const {
  const Work& work = launch.op->work;
  if (const auto* run = std::get_if<RunKernel>(&work)) {
    ExecuteKernel(*run, launch);
  } else if (const auto* copy = std::get_if<CopyElements>(&work)) {
    Copy(*copy, launch);
  } else if (const auto* scale_into = std::get_if<ScaleInto>(&work)) {
    Scale(*scale_into, launch);
  } else if (const auto* divide = std::get_if<DivideElements>(&work)) {
    Divide(*divide, launch);
  } else if (const auto* add = std::get_if<AddElements>(&work)) {
    Add(*add, launch);
  } else if (std::holds_alternative<ZeroState>(work)) {
    for (const Block& b : launch.out) std::memset(b.data, 0, b.bytes);
  } else if (const auto* measure = std::get_if<MeasureGradients>(&work)) {
    Measure(*measure, launch);
  } else if (const auto* scale = std::get_if<ScaleGradients>(&work)) {
    Scale(*scale, launch);
  } else if (const auto* update = std::get_if<UpdateParameters>(&work)) {
    Update(*update, launch);
  } else {
    CHECK(std::holds_alternative<std::monostate>(work)) << launch.op->place << " is a collective";
  }
}

void CpuDevice::ExecuteKernel(const RunKernel& run, const Launch& launch) const {
  const PreparedKernel& kernel = plan_.kernels[run.kernel];
  std::vector<TensorView> in = kernel.in;
  std::vector<TensorView> out = kernel.out;
  for (size_t i = 0; i < in.size(); ++i) {
    in[i].data = launch.in[i].data + run.in_offsets[i] * SizeOf(in[i].dtype);
  }
  for (size_t i = 0; i < out.size(); ++i) out[i].data = launch.out[i].data;
  const KernelSlot slot;
  kernels_[run.kernel]({in, out, kernel.attributes, launch.random});
}

void CpuDevice::Wait(int stream, Event* event) {
  if (event == nullptr) return;
  Push(stream, [event = static_cast<CpuEvent*>(event)] { event->Wait(); });
}

CpuEvent* CpuDevice::NewEvent() {
  events_[0].push_back(std::make_unique<CpuEvent>(failure_));
  return events_[0].back().get();
}

Event* CpuDevice::Record(int stream) {
  CpuEvent* event = NewEvent();
  Push(stream, [event] { event->Set(); });
  return event;
}

Status CpuDevice::Synchronize(Event* event) {
  if (event == nullptr || static_cast<CpuEvent*>(event)->Wait()) return OkStatus();
  return failure_.Cause();
}

void CpuDevice::Write(int stream, const Block& to, std::span<const std::byte> from) {
  CHECK_EQ(static_cast<int64_t>(from.size()), to.bytes);
  Push(stream, [this, to, from, changes = TakeChanges(stream, std::span(&to, 1))] {
    Apply(changes);
    sanitizers::AnnounceWrite(to.data, to.bytes);
    std::memcpy(to.data, from.data(), from.size());
  });
}

void CpuDevice::Read(int stream, const Block& from, std::span<std::byte> to) {
  CHECK_EQ(static_cast<int64_t>(to.size()), from.bytes);
  Push(stream, [from, to] {
    sanitizers::AnnounceRead(from.data, from.bytes);
    std::memcpy(to.data(), from.data, to.size());
  });
}

void CpuDevice::BeginStep(std::span<Event* const> kept) {
  TakeBackBlocks();  // held for none of those that go
  std::vector<std::unique_ptr<CpuEvent>> oldest = std::exchange(events_[2], {});
  std::erase_if(oldest, [&](const std::unique_ptr<CpuEvent>& event) {
    return std::ranges::find(kept, event.get()) == kept.end();
  });
  events_[2] = std::exchange(events_[1], std::exchange(events_[0], {}));
  std::ranges::move(oldest, std::back_inserter(events_[2]));
}

int64_t CpuDevice::Clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace foreshard::exec
