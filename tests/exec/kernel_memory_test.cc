// Kernels allocate nothing and keep to their stack.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/exec/kernel_cases.h"
#include "tests/exec/typed_tensor.h"

namespace {

std::atomic<int64_t> g_allocations = 0;

// Not ours: for some small products (columns modulo 16 from 1 to 8, at least 32 summands) OpenBLAS
// 0.3.21 takes a buffer on machines with AVX-512.
[[maybe_unused]] bool IsBlas(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "openblas") != nullptr;
}

}  // namespace

// Counts what malloc is asked for, and so operator new.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
extern "C" void* __libc_malloc(size_t size);  // NOLINT: glibc's name
extern "C" void* malloc(size_t size) {
  if (!IsBlas(__builtin_return_address(0))) ++g_allocations;
  return __libc_malloc(size);
}
#endif

namespace foreshard::exec {
namespace {

int64_t AllocationsOf(const KernelCall& call, std::string_view name) {
  const CpuKernel kernel = FindCpuKernel(name);
  const int64_t before = g_allocations;
  kernel(call);
  return g_allocations - before;
}

TEST(KernelMemory, AllocationsAreCounted) {
  if (kSanitized) GTEST_SKIP() << "malloc is the sanitizer's";
  const int64_t before = g_allocations;
  const auto number = std::make_unique<std::vector<int>>(100);
  EXPECT_GE(g_allocations - before, 1);
}

TEST(KernelMemory, KernelsAllocateNothing) {
  if (kSanitized) GTEST_SKIP() << "malloc is the sanitizer's";
  InitCpuKernels();
  for (const KernelCase& c : LoadKernelCases()) {
    const CaseRun run(c);
    EXPECT_EQ(AllocationsOf(run.call(), c.kernel), 0) << c.name;
  }
}

TEST(KernelMemory, LargeProductsAllocateNothing) {
  if (kSanitized) GTEST_SKIP() << "malloc is the sanitizer's";
  InitCpuKernels();
  TypedTensor<float> a = RandomTensor({300, 400}, 1), b = RandomTensor({400, 500}, 2),
                     c({300, 500});
  TypedTensor<uint16_t> half = RandomBf16({300, 400}, 1);
  for (const TensorView& left : {a.view(), half.view()}) {
    const std::vector<TensorView> in = {left, b.view()}, out = {c.view()};
    EXPECT_EQ(AllocationsOf({in, out, {}, 0}, "mm"), 0);
  }
}

TEST(KernelMemory, KernelsFitTheirStack) {
  if (kSanitized) GTEST_SKIP() << "sanitizers put gaps between what is on the stack";
  InitCpuKernels();
  const auto run_all = [](void*) -> void* {
    for (const KernelCase& c : LoadKernelCases()) {
      const CaseRun run(c);
      FindCpuKernel(c.kernel)(run.call());
    }
    return nullptr;
  };
  // What the test itself and the matrix library need is in the rest.
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kMaxKernelStack + (128 << 10)), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run_all, nullptr), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace
}  // namespace foreshard::exec
