// The recorded cases of tests/exec/data (make_kernel_cases.py says what they are), ready to be run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "exec/cpu/kernel.h"

namespace foreshard::exec {

struct CaseTensor {
  DType dtype = DType::kFp32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::vector<std::byte> memory;  // of operands
  std::vector<float> expected;    // of results, row-major; empty for integers
  std::vector<int64_t> expected_integers;
  double tolerance = 0;  // relative to the largest expected value

  int64_t numel() const;
  // From the first to the last element, whether or not the strides skip some.
  int64_t elements() const;
  TensorView View(void* data) const;
};

struct KernelCase {
  std::string name;  // "softmax 3: bf16 [2, 35]"
  std::string kernel;
  KernelAttributes attributes;
  uint64_t random = 0;
  std::vector<CaseTensor> in;
  std::vector<CaseTensor> out;
};

// All cases; fails the test and gives none where the files cannot be read.
std::vector<KernelCase> LoadKernelCases();

// Memory for a case's operands and results, which starts `shift` elements behind an aligned
// address.
class CaseRun {
 public:
  explicit CaseRun(const KernelCase& c, int64_t shift = 0);
  KernelCall call() const;
  // The elements of a result in row-major order.
  std::vector<float> Floats(size_t result) const;
  std::vector<int64_t> Integers(size_t result) const;
  const std::vector<std::byte>& memory(size_t result) const { return out_memory_[result]; }

 private:
  const KernelCase& case_;
  std::vector<std::vector<std::byte>> in_memory_, out_memory_;
  std::vector<TensorView> in_, out_;
};

// One element of a tensor as a float.
float ElementOf(const TensorView& t, int64_t offset);

}  // namespace foreshard::exec
