#include "tests/testing/sequential.h"

#include "exec/cpu/kernel.h"
#include "exec/kernel_call.h"
#include "exec/random.h"

namespace foreshard {

std::vector<std::byte>& SequentialRunner::Memory(int buffer) {
  if (buffer >= static_cast<int>(memory_.size())) memory_.resize(buffer + 1);
  std::vector<std::byte>& memory = memory_[buffer];
  if (memory.empty()) memory.assign(plan_.buffers(buffer).bytes(), std::byte{0xff});
  return memory;
}

std::span<std::byte> SequentialRunner::bytes(int buffer) { return Memory(buffer); }

void SequentialRunner::Run(const pb::Segment& segment, int first, int last) {
  for (int i = first; i < last; ++i) {
    const pb::Op& op = segment.ops(i);
    for (int b : op.allocs()) {
      std::vector<std::byte>& memory = Memory(b);
      std::fill(memory.begin(), memory.end(), std::byte{0xff});
    }
    Compute(op);
    for (int b : op.frees()) memory_[b] = {};
  }
}

void SequentialRunner::Compute(const pb::Op& op) {
  CHECK(op.has_compute()) << "the sequential runner only knows compute ops";
  const pb::Kernel& kernel = plan_.kernels(op.compute().kernel());
  const exec::CpuKernel run = exec::FindCpuKernel(kernel.name());
  CHECK(run != nullptr) << "no CPU kernel " << kernel.name();
  std::vector<exec::TensorView> in, out;
  for (int i = 0; i < op.in_size(); ++i) {
    const int64_t offset = op.in_offsets_size() > 0 ? op.in_offsets(i) : 0;
    in.push_back(exec::ViewOf(kernel.operands(i), Memory(op.in(i)).data(), offset));
  }
  for (int i = 0; i < op.out_size(); ++i) {
    out.push_back(exec::ViewOf(kernel.results(i), Memory(op.out(i)).data()));
  }
  const uint64_t key = exec::ExtendKey(key_, static_cast<uint64_t>(op.random()));
  run({in, out, exec::AttributesOf(kernel), key});
}

}  // namespace foreshard
