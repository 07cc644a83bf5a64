// A device made of host memory and threads, with real arithmetic.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "exec/cpu/kernel.h"
#include "exec/cpu/memory.h"
#include "exec/cpu/stream.h"
#include "exec/device.h"

namespace foreshard::exec {

class CpuDevice : public Device {
 public:
  // `poisons`: bytes are overwritten with NaNs when they get an owner and when they lose it. That
  // is work of the stream: it runs with the op that the stream is given next, after what that op
  // waits for, as only then nobody uses the bytes any more. REQUIRES: `plan` and `failure` outlive
  // the device, and FindCpuKernel knows the plan's kernels.
  CpuDevice(const PreparedPlan& plan, int streams, bool poisons, FailureFlag& failure);
  ~CpuDevice() override;

  StatusOr<Block> Allocate(int64_t bytes, Pool pool) override;
  void Free(const Block& block, Pool pool, std::span<const int> users) override;
  int64_t device_bytes() const override { return memory_.device_bytes(); }
  int64_t host_bytes() const override { return memory_.host_bytes(); }
  void Run(int stream, const Launch& launch) override;
  void Wait(int stream, Event* event) override;
  Event* Record(int stream) override;
  Status Synchronize(Event* event) override;
  void Write(int stream, const Block& to, std::span<const std::byte> from) override;
  void Read(int stream, const Block& from, std::span<std::byte> to) override;
  void BeginStep(std::span<Event* const> kept) override;
  int64_t Now() const override { return Clock(); }

  // ---- for work on streams: not virtual, as it may run while an heir is destroyed
  static int64_t Clock();

  // ---- for the communicator, which queues work of its own
  void Push(int stream, CpuStream::Task task) { streams_[stream]->Push(std::move(task)); }
  // Bytes that changed their owner and have not been overwritten for it.
  struct Change {
    Block block;
    bool is_freed = false;
    bool had_users = false;  // on other streams, which have released it
  };
  // Those that are due with this launch, which Apply then overwrites when it runs.
  std::vector<Change> TakeChanges(int stream, const Launch& launch);
  void Apply(const std::vector<Change>& changes) const;

 private:
  std::vector<Change> TakeChanges(int stream, std::span<const Block> used);
  void TakeBackBlocks();
  CpuEvent* NewEvent();
  void Execute(const Launch& launch) const;
  void ExecuteKernel(const RunKernel& run, const Launch& launch) const;

  const PreparedPlan& plan_;
  const bool poisons_;
  FailureFlag& failure_;
  CpuMemory memory_;
  std::vector<CpuKernel> kernels_;            // of the plan's table
  std::vector<std::vector<Change>> changes_;  // by stream
  // Of this step and of the two before it, and those of earlier ones that were to be kept.
  std::array<std::vector<std::unique_ptr<CpuEvent>>, 3> events_;
  std::vector<std::unique_ptr<CpuStream>> streams_;  // joined first
};

}  // namespace foreshard::exec
