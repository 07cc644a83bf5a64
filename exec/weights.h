// Where the values of parameters come from before the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {

// The elements [first, first + out.size()) of a parameter, in row-major order of its shape. They
// depend on the arguments only: element i of a normal one is RandomNormal(key, i) * its standard
// deviation, and of a uniform one (2 * RandomUniform(key, i) - 1) * its bound, where key =
// RandomKey({seed, Fnv1a64(path)}). REQUIRES: a distribution is set.
void FillInitial(const pb::Initial& initial, uint64_t seed, std::string_view path, int64_t first,
                 std::span<float> out);

// Has a value for every parameter of the plan that it was made for. Threads may fill at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The elements [first, first + out.size()) of a parameter of the plan, in row-major order of its
  // shape, without the padding of shards. A file that cannot be read any more is an error.
  // REQUIRES: they are the parameter's.
  virtual Status Fill(int parameter, int64_t first, std::span<float> out) const = 0;
};

// FillInitial of each. kInvalidPlan for a parameter without `initial`. The plan must outlive it.
StatusOr<std::unique_ptr<WeightSource>> WeightsFromSeed(const pb::Plan& plan, uint64_t seed);

struct FileWeights {
  std::unique_ptr<WeightSource> source;
  std::vector<std::string> unused;  // tensors that are no parameter of the plan, by name
};

// From a .safetensors file or an index of several. A tensor is found by its parameter's path or one
// of shared_with, has the parameter's shape, and is fp32, bf16 or fp16; the first that is missing
// or otherwise is kInvalidInput, with how many there are. Tied tensors that are stored more than
// once must be the same. The plan need not outlive it.
StatusOr<FileWeights> WeightsFromFile(const pb::Plan& plan, const std::string& path);

}  // namespace foreshard::exec
