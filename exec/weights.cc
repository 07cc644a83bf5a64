#include "exec/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "exec/convert.h"
#include "exec/random.h"
#include "proto/base/check.h"
#include "proto/base/safetensors.h"
#include "proto/base/text.h"

namespace foreshard::exec {
namespace {

constexpr size_t kBlock = 1 << 16;  // elements converted at a time

bool IsReadable(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kBf16 || type == StoredType::kF16;
}

Status ReadAsFloat(const Safetensors& file, const StoredTensor& tensor, int64_t first,
                   std::span<float> out) {
  if (tensor.type == StoredType::kF32) {
    return file.Read(tensor, first, std::as_writable_bytes(out));
  }
  const DType stored = tensor.type == StoredType::kBf16 ? DType::kBf16 : DType::kFp16;
  std::vector<uint16_t> halves(std::min(out.size(), kBlock));
  while (!out.empty()) {
    const auto part = std::span(halves).first(std::min(out.size(), kBlock));
    RETURN_IF_ERROR(file.Read(tensor, first, std::as_writable_bytes(part)));
    const auto numel = static_cast<int64_t>(part.size());
    ConvertElements(part.data(), stored, out.data(), DType::kFp32, numel);
    first += numel;
    out = out.subspan(part.size());
  }
  return OkStatus();
}

std::vector<int64_t> ShapeOf(const pb::Parameter& parameter) {
  return {parameter.shape().begin(), parameter.shape().end()};
}

class SeedWeights : public WeightSource {
 public:
  SeedWeights(const pb::Plan& plan, uint64_t seed) : plan_(plan), seed_(seed) {}
  Status Fill(int parameter, int64_t first, std::span<float> out) const override {
    const pb::Parameter& p = plan_.parameters(parameter);
    FillInitial(p.initial(), seed_, p.path(), first, out);
    return OkStatus();
  }

 private:
  const pb::Plan& plan_;
  uint64_t seed_;
};

class StoredWeights : public WeightSource {
 public:
  StoredWeights(Safetensors file, std::vector<StoredTensor> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}
  Status Fill(int parameter, int64_t first, std::span<float> out) const override {
    return ReadAsFloat(file_, tensors_[static_cast<size_t>(parameter)], first, out);
  }

 private:
  Safetensors file_;
  std::vector<StoredTensor> tensors_;  // of each parameter
};

// What is wrong with a tensor as a value of the parameter; nullopt = nothing.
std::optional<std::string> Mismatch(const StoredTensor& tensor, const pb::Parameter& parameter) {
  if (tensor.shape != ShapeOf(parameter)) {
    return "found the shape " + FormatShape(tensor.shape) + ", expected " +
           FormatShape(ShapeOf(parameter));
  }
  if (!IsReadable(tensor.type)) {
    return "found " + std::string(Name(tensor.type)) + ", expected F32, BF16 or F16";
  }
  return std::nullopt;
}

std::string Missing(const Safetensors& file, const pb::Parameter& parameter) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  const std::optional<std::string> nearest = NearestMatch(parameter.path(), names);
  return "no tensor has this name" + (nearest ? "; the nearest is " + QuoteName(*nearest) : "");
}

// Bit for bit, once both are floats. REQUIRES: equal shapes of readable types.
StatusOr<bool> SameValues(const Safetensors& file, const StoredTensor& a, const StoredTensor& b) {
  std::vector<float> left(std::min(static_cast<size_t>(a.numel), kBlock));
  std::vector<float> right(left.size());
  for (int64_t first = 0; first < a.numel; first += static_cast<int64_t>(kBlock)) {
    const size_t count = std::min(static_cast<size_t>(a.numel - first), kBlock);
    RETURN_IF_ERROR(ReadAsFloat(file, a, first, std::span(left).first(count)));
    RETURN_IF_ERROR(ReadAsFloat(file, b, first, std::span(right).first(count)));
    if (std::memcmp(left.data(), right.data(), count * sizeof(float)) != 0) return false;
  }
  return true;
}

// Pairs parameters with tensors, and keeps the first that do not match.
class Matcher {
 public:
  Matcher(const Safetensors& file, const pb::Plan& plan) : file_(file), plan_(plan) {
    for (const StoredTensor& tensor : file.tensors()) unused_.emplace(tensor.name, &tensor);
  }

  StatusOr<std::vector<StoredTensor>> Match() {
    std::vector<StoredTensor> matched;
    for (const pb::Parameter& parameter : plan_.parameters()) {
      ASSIGN_OR_RETURN(const StoredTensor* tensor, TensorOf(parameter));
      if (tensor != nullptr) matched.push_back(*tensor);
    }
    const int wrong = plan_.parameters_size() - static_cast<int>(matched.size());
    if (wrong == 0) return matched;
    return InvalidInput(file_.path() + ": " + first_ + " (" + std::to_string(wrong) + " of " +
                        std::to_string(plan_.parameters_size()) + " parameters do not match)");
  }

  std::vector<std::string> Unused() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : unused_) names.push_back(name);
    return names;
  }

 private:
  // nullptr when there is none that fits, which is then noted.
  StatusOr<const StoredTensor*> TensorOf(const pb::Parameter& parameter) {
    std::vector<std::string> names = {parameter.path()};
    names.insert(names.end(), parameter.shared_with().begin(), parameter.shared_with().end());
    const StoredTensor* found = nullptr;
    for (const std::string& name : names) {
      const StoredTensor* tensor = file_.Find(name);
      if (tensor == nullptr) continue;
      unused_.erase(name);
      if (const auto mismatch = Mismatch(*tensor, parameter))
        return Note("tensor", name, *mismatch);
      if (found == nullptr) {
        found = tensor;
        continue;
      }
      ASSIGN_OR_RETURN(const bool same, SameValues(file_, *found, *tensor));
      if (!same) {
        return Note("tensor", name,
                    "its values differ from those of " + QuoteName(found->name) +
                        ", which the model ties it to");
      }
    }
    if (found == nullptr && first_.empty()) {  // the search for a near name takes a while
      return Note("parameter", parameter.path(), Missing(file_, parameter));
    }
    return found;
  }

  const StoredTensor* Note(std::string_view what, const std::string& name,
                           const std::string& fault) {
    if (first_.empty()) first_ = std::string(what) + " " + QuoteName(name) + ": " + fault;
    return nullptr;
  }

  const Safetensors& file_;
  const pb::Plan& plan_;
  std::map<std::string, const StoredTensor*> unused_;
  std::string first_;
};

}  // namespace

void FillInitial(const pb::Initial& initial, uint64_t seed, std::string_view path, int64_t first,
                 std::span<float> out) {
  const uint64_t key = RandomKey({seed, Fnv1a64(path)});
  auto index = static_cast<uint64_t>(first);
  switch (initial.distribution_case()) {
    case pb::Initial::kNormal: {
      const auto deviation = static_cast<float>(initial.normal());
      for (float& value : out) value = RandomNormal(key, index++) * deviation;
      return;
    }
    case pb::Initial::kUniform: {
      const auto bound = static_cast<float>(initial.uniform());
      for (float& value : out) value = (2 * RandomUniform(key, index++) - 1) * bound;
      return;
    }
    case pb::Initial::kConstant:
      std::fill(out.begin(), out.end(), static_cast<float>(initial.constant()));
      return;
    case pb::Initial::DISTRIBUTION_NOT_SET:
      break;
  }
  CHECK(false) << "parameter " << path << " has no initial value";
}

StatusOr<std::unique_ptr<WeightSource>> WeightsFromSeed(const pb::Plan& plan, uint64_t seed) {
  for (const pb::Parameter& parameter : plan.parameters()) {
    if (parameter.initial().distribution_case() == pb::Initial::DISTRIBUTION_NOT_SET) {
      return InvalidPlan("parameter " + QuoteName(parameter.path()) + ": has no initial value");
    }
  }
  return std::unique_ptr<WeightSource>(std::make_unique<SeedWeights>(plan, seed));
}

StatusOr<FileWeights> WeightsFromFile(const pb::Plan& plan, const std::string& path) {
  ASSIGN_OR_RETURN(Safetensors file, Safetensors::Open(path));
  Matcher matcher(file, plan);
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, matcher.Match());
  FileWeights weights;
  weights.unused = matcher.Unused();
  weights.source = std::make_unique<StoredWeights>(std::move(file), std::move(tensors));
  return weights;
}

}  // namespace foreshard::exec
