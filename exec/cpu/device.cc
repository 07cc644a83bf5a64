#include "exec/cpu/device.h"

#include <chrono>
#include <cstring>

#include "exec/cpu/copy_elements.h"
#include "exec/cpu/sanitizers.h"
#include "exec/cpu/update.h"
#include "proto/base/check.h"

namespace foreshard::exec {
namespace {

constexpr int kPoison = 0xFF;  // NaN in every floating-point type, -1 in the others

void Announce(const Launch& launch) {
  for (const Block& b : launch.in) sanitizers::AnnounceRead(b.data, b.bytes);
  for (const Block& b : launch.out) sanitizers::AnnounceWrite(b.data, b.bytes);
  for (const Block& b : launch.scratch) sanitizers::AnnounceWrite(b.data, b.bytes);
}

}  // namespace

CpuDevice::CpuDevice(const PreparedPlan& plan, int streams, bool poisons, FailureFlag& failure)
    : plan_(plan), poisons_(poisons), failure_(failure) {
  for (const PreparedKernel& kernel : plan.kernels) {
    kernels_.push_back(FindCpuKernel(kernel.name));
    CHECK(kernels_.back() != nullptr) << "no CPU kernel " << kernel.name;
  }
  for (int i = 0; i < streams; ++i) streams_.push_back(std::make_unique<CpuStream>(failure));
}

CpuDevice::~CpuDevice() { streams_.clear(); }

StatusOr<Block> CpuDevice::Allocate(int64_t bytes, int stream) {
  ASSIGN_OR_RETURN(const Block block, memory_.Allocate(bytes, stream));
  Push(stream, [block, poisons = poisons_] {
    sanitizers::Permit(block.data, block.bytes);
    sanitizers::AnnounceWrite(block.data, block.bytes);
    if (poisons) std::memset(block.data, kPoison, block.bytes);
  });
  return block;
}

void CpuDevice::Free(const Block& block, int stream) {
  memory_.Free(block, stream);
  Push(stream, [block, poisons = poisons_] {
    sanitizers::AnnounceWrite(block.data, block.bytes);
    if (poisons) std::memset(block.data, kPoison, block.bytes);
    sanitizers::Forbid(block.data, block.bytes);
  });
}

void CpuDevice::Run(int stream, const Launch& launch) {
  Push(stream, [this, launch] {
    if (launch.span != nullptr) launch.span->start = Now();
    Announce(launch);
    Execute(launch);
    if (launch.span != nullptr) launch.span->end = Now();
  });
}

void CpuDevice::Execute(const Launch& launch) const {
  const Work& work = launch.op->work;
  if (const auto* run = std::get_if<RunKernel>(&work)) {
    ExecuteKernel(*run, launch);
  } else if (const auto* copy = std::get_if<CopyElements>(&work)) {
    Copy(*copy, launch);
  } else if (std::holds_alternative<ZeroState>(work)) {
    for (const Block& b : launch.out) std::memset(b.data, 0, b.bytes);
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
  kernels_[run.kernel]({in, out, kernel.attributes, launch.random});
}

void CpuDevice::Wait(int stream, Event* event) {
  if (event == nullptr) return;
  Push(stream, [event = static_cast<CpuEvent*>(event)] { event->Wait(); });
}

Event* CpuDevice::Record(int stream) {
  events_[0].push_back(std::make_unique<CpuEvent>(failure_));
  CpuEvent* event = events_[0].back().get();
  Push(stream, [event] { event->Set(); });
  return event;
}

Status CpuDevice::Synchronize(Event* event) {
  if (event == nullptr || static_cast<CpuEvent*>(event)->Wait()) return OkStatus();
  return failure_.Cause();
}

void CpuDevice::Write(int stream, const Block& to, std::span<const std::byte> from) {
  CHECK_EQ(static_cast<int64_t>(from.size()), to.bytes);
  Push(stream, [to, from] {
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

void CpuDevice::BeginStep() {
  events_[2] = std::move(events_[1]);
  events_[1] = std::move(events_[0]);
  events_[0].clear();
}

int64_t CpuDevice::Now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace foreshard::exec
