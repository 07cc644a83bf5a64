#include "exec/cpu/kernel.h"

#include <cblas.h>

#include "exec/cpu/kernel_check.h"
#include "proto/base/check.h"

// One namespace for each instruction set that kernels/ is compiled for (exec/CMakeLists.txt).
namespace foreshard::exec::baseline {
CpuKernel FindKernel(std::string_view name);
}
#ifdef FORESHARD_KERNELS_AVX2
namespace foreshard::exec::avx2 {
CpuKernel FindKernel(std::string_view name);
}
#endif

namespace foreshard::exec {

void InitCpuKernels() { openblas_set_num_threads(1); }

std::string_view BlasCore() { return openblas_get_corename(); }

CpuKernel FindCpuKernel(std::string_view name) {
#ifdef FORESHARD_KERNELS_AVX2
  if (__builtin_cpu_supports("avx2")) return avx2::FindKernel(name);
#endif
  return baseline::FindKernel(name);
}

CpuKernel FindBaselineCpuKernel(std::string_view name) { return baseline::FindKernel(name); }

void CheckIndex(std::string_view what, int64_t index, int64_t extent) {
  CHECK(0 <= index && index < extent) << what << " " << index << " is not below " << extent;
}

}  // namespace foreshard::exec
