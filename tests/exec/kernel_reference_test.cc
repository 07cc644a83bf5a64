// Every kernel against PyTorch's operator, on recorded cases.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "exec/cpu/kernel.h"
#include "proto/oplib/oplib.h"
#include "tests/exec/kernel_cases.h"

namespace foreshard::exec {
namespace {

const std::vector<KernelCase>& Cases() {
  static const auto* const kCases = new std::vector<KernelCase>(LoadKernelCases());
  return *kCases;
}

class Kernels : public testing::Test {
 protected:
  static void SetUpTestSuite() { InitCpuKernels(); }
};

// Relative error of one rounding to a dtype: half a unit in the last of its 8 or 11 bits. That of
// fp32 is within the cases' tolerance.
double Rounding(DType t) {
  if (t == DType::kBf16) return 0x1p-8;
  if (t == DType::kFp16) return 0x1p-11;
  return 0;
}

void ExpectClose(const CaseTensor& want, const std::vector<float>& found, const std::string& name) {
  double largest = 0;
  for (const float x : want.expected) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  }
  ASSERT_EQ(want.expected.size(), found.size()) << name;
  for (size_t i = 0; i < found.size(); ++i) {
    const double expected = want.expected[i];
    const double got = found[i];
    if (!std::isfinite(expected)) {
      EXPECT_EQ(expected, got) << name << ", element " << i;
      continue;
    }
    const double allowed =
        want.tolerance * largest + Rounding(want.dtype) * std::fabs(expected) * (1 + 1e-6);
    ASSERT_LE(std::fabs(got - expected), allowed)
        << name << ", element " << i << ": " << got << ", expected " << expected;
  }
}

TEST_F(Kernels, EveryRowOfTheLibraryHasOne) {
  for (const oplib::KernelInfo& info : oplib::All()) {
    EXPECT_NE(FindCpuKernel(info.name), nullptr) << info.name;
    EXPECT_NE(FindBaselineCpuKernel(info.name), nullptr) << info.name;
  }
  EXPECT_EQ(FindCpuKernel("conv"), nullptr);
}

TEST_F(Kernels, EveryRowHasRecordedCasesButForRandomNumbers) {
  std::set<std::string> covered = {"dropout", "dropout_mask"};  // tests/exec/dropout_test.cc
  for (const KernelCase& c : Cases()) covered.insert(c.kernel);
  for (const oplib::KernelInfo& info : oplib::All()) {
    EXPECT_TRUE(covered.count(std::string(info.name))) << info.name << " has no case";
  }
}

TEST_F(Kernels, ComputeWhatPyTorchDoes) {
  for (const KernelCase& c : Cases()) {
    const CaseRun run(c);
    FindCpuKernel(c.kernel)(run.call());
    for (size_t i = 0; i < c.out.size(); ++i) {
      const std::string name = c.name + ", result " + std::to_string(i);
      if (c.out[i].expected.empty()) {
        EXPECT_EQ(run.Integers(i), c.out[i].expected_integers) << name;
      } else {
        ExpectClose(c.out[i], run.Floats(i), name);
      }
    }
  }
}

TEST_F(Kernels, GiveTheSameBitsOnEveryInstructionSet) {
  for (const KernelCase& c : Cases()) {
    const CaseRun fast(c), plain(c);
    FindCpuKernel(c.kernel)(fast.call());
    FindBaselineCpuKernel(c.kernel)(plain.call());
    for (size_t i = 0; i < c.out.size(); ++i) EXPECT_EQ(fast.memory(i), plain.memory(i)) << c.name;
  }
}

TEST_F(Kernels, GiveTheSameBitsWhereverTheOperandsLie) {
  for (const KernelCase& c : Cases()) {
    const CaseRun aligned(c), shifted(c, 1);
    FindCpuKernel(c.kernel)(aligned.call());
    FindCpuKernel(c.kernel)(shifted.call());
    for (size_t i = 0; i < c.out.size(); ++i) {
      if (c.out[i].expected.empty()) {
        EXPECT_EQ(aligned.Integers(i), shifted.Integers(i)) << c.name;
        continue;
      }
      const std::vector<float> a = aligned.Floats(i), b = shifted.Floats(i);
      for (size_t j = 0; j < a.size(); ++j) ASSERT_EQ(a[j], b[j]) << c.name;
    }
  }
}

TEST_F(Kernels, AddInPlace) {
  // Elementwise kernels may write one of their operands, also where it is transposed.
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, y = {10, 20, 30, 40, 50, 60};
  CaseTensor t;
  t.shape = {3, 2};
  t.strides = {1, 3};
  const TensorView a = t.View(x.data());
  t.strides = {2, 1};
  const TensorView b = t.View(y.data());
  FindCpuKernel("add_")({std::vector{a, b}, std::vector{a}, {}, 0});
  EXPECT_EQ(x, (std::vector<float>{11, 32, 53, 24, 45, 66}));
}

}  // namespace
}  // namespace foreshard::exec
