#include "tests/exec/kernel_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "proto/base/file.h"

namespace foreshard::exec {
namespace {

using Json = nlohmann::json;

// What the efficient attention's cases expect as seed, as the generator has it.
constexpr uint64_t kSeed = 1234567;

std::string ReadAll(const std::string& name) {
  const std::string path = std::string(FORESHARD_SOURCE_DIR) + "/tests/exec/data/" + name;
  StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? std::move(text).value() : "";
}

// Takes values off the binary file in the order of the index.
class Values {
 public:
  explicit Values(std::string bytes) : bytes_(std::move(bytes)) {}
  template <typename T>
  std::vector<T> Next(int64_t count) {
    at_ = (at_ + 7) / 8 * 8;
    std::vector<T> values(count);
    const size_t size = count * sizeof(T);
    EXPECT_LE(at_ + size, bytes_.size()) << "kernel_cases.bin is too short";
    if (at_ + size <= bytes_.size() && size > 0) {
      std::memcpy(values.data(), bytes_.data() + at_, size);
    }
    at_ += size;
    return values;
  }
  bool AtEnd() const { return at_ == bytes_.size(); }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

CaseTensor ParseTensor(const Json& json) {
  CaseTensor t;
  t.dtype = ParseDType(json["dtype"].get<std::string>()).value();
  t.shape = json["shape"].get<std::vector<int64_t>>();
  t.tolerance = json.value("tolerance", 1e-6);
  if (json.contains("strides")) {
    t.strides = json["strides"].get<std::vector<int64_t>>();
    return t;
  }
  int64_t stride = 1;
  t.strides.resize(t.shape.size());
  for (size_t d = t.shape.size(); d-- > 0;) {
    t.strides[d] = stride;
    stride *= t.shape[d];
  }
  return t;
}

bool IsInteger(DType t) { return t == DType::kInt64 || t == DType::kUint64 || t == DType::kBool; }

KernelAttributes ParseAttributes(const Json& json) {
  KernelAttributes a;
  a.scalar = json.value("scalar", 0.0);
  a.eps = json.value("eps", 0.0);
  a.dim = json.value("dim", int64_t{0});
  if (json.contains("slice")) {
    const Json& s = json["slice"];
    a.slice = {s["dim"], s["start"], s["length"]};
  }
  if (json.contains("attention")) {
    const Json& s = json["attention"];
    a.attention = {s["causal"], s["scale"], s["dropout"]};
  }
  return a;
}

KernelCase ParseCase(const Json& json, Values& values) {
  KernelCase c;
  c.kernel = json["kernel"];
  c.random = kSeed;
  if (json.contains("attributes")) c.attributes = ParseAttributes(json["attributes"]);
  for (const Json& t : json["in"]) {
    CaseTensor& in = c.in.emplace_back(ParseTensor(t));
    in.memory = values.Next<std::byte>(in.elements() * SizeOf(in.dtype));
  }
  for (const Json& t : json["out"]) {
    CaseTensor& out = c.out.emplace_back(ParseTensor(t));
    if (IsInteger(out.dtype)) {
      out.expected_integers = values.Next<int64_t>(out.numel());
    } else {
      out.expected = values.Next<float>(out.numel());
    }
  }
  return c;
}

// Offset of the i-th element in row-major order.
int64_t OffsetOf(const CaseTensor& t, int64_t i) {
  int64_t offset = 0;
  for (size_t d = t.shape.size(); d-- > 0;) {
    offset += i % t.shape[d] * t.strides[d];
    i /= t.shape[d];
  }
  return offset;
}

}  // namespace

int64_t CaseTensor::numel() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int64_t CaseTensor::elements() const {
  if (numel() == 0) return 0;
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
  return last + 1;
}

TensorView CaseTensor::View(void* data) const {
  TensorView view;
  view.dtype = dtype;
  view.dims = static_cast<int>(shape.size());
  for (int d = 0; d < view.dims; ++d) {
    view.shape[d] = shape[d];
    view.strides[d] = strides[d];
  }
  view.data = data;
  return view;
}

std::vector<KernelCase> LoadKernelCases() {
  const Json index = Json::parse(ReadAll("kernel_cases.json"), nullptr, false);
  EXPECT_TRUE(index.is_array()) << "kernel_cases.json is no list";
  if (!index.is_array()) return {};
  Values values(ReadAll("kernel_cases.bin"));
  std::vector<KernelCase> cases;
  std::map<std::string, int> count;
  for (const Json& json : index) {
    KernelCase c = ParseCase(json, values);
    const CaseTensor& shown = c.in.empty() ? c.out[0] : c.in[0];
    c.name = fmt::format("{} {}: {} [{}]", c.kernel, ++count[c.kernel], Name(shown.dtype),
                         fmt::join(shown.shape, ", "));
    cases.push_back(std::move(c));
  }
  EXPECT_TRUE(values.AtEnd()) << "kernel_cases.bin has more than the index says";
  return cases;
}

CaseRun::CaseRun(const KernelCase& c, int64_t shift) : case_(c) {
  for (const CaseTensor& t : c.in) {
    const int64_t start = shift * SizeOf(t.dtype);
    std::vector<std::byte>& memory = in_memory_.emplace_back(start + t.memory.size() + 1);
    std::copy(t.memory.begin(), t.memory.end(), memory.begin() + start);
    in_.push_back(t.View(memory.data() + start));
  }
  for (const CaseTensor& t : c.out) {
    const int64_t start = shift * SizeOf(t.dtype);
    // Not a number wherever nothing is written.
    std::vector<std::byte>& memory =
        out_memory_.emplace_back(start + t.elements() * SizeOf(t.dtype), std::byte{0xff});
    out_.push_back(t.View(memory.data() + start));
  }
}

KernelCall CaseRun::call() const { return {in_, out_, case_.attributes, case_.random}; }

std::vector<float> CaseRun::Floats(size_t result) const {
  const CaseTensor& t = case_.out[result];
  std::vector<float> values;
  for (int64_t i = 0; i < t.numel(); ++i) {
    values.push_back(ElementOf(out_[result], OffsetOf(t, i)));
  }
  return values;
}

std::vector<int64_t> CaseRun::Integers(size_t result) const {
  const CaseTensor& t = case_.out[result];
  std::vector<int64_t> values;
  for (int64_t i = 0; i < t.numel(); ++i) {
    const int64_t at = OffsetOf(t, i);
    values.push_back(t.dtype == DType::kBool
                         ? static_cast<int64_t>(static_cast<uint8_t*>(out_[result].data)[at])
                         : static_cast<int64_t*>(out_[result].data)[at]);
  }
  return values;
}

float ElementOf(const TensorView& t, int64_t offset) {
  const auto half = [&] { return static_cast<const uint16_t*>(t.data)[offset]; };
  if (t.dtype == DType::kBf16) return std::bit_cast<float>(uint32_t{half()} << 16);
  if (t.dtype == DType::kFp32) return static_cast<const float*>(t.data)[offset];
  EXPECT_EQ(t.dtype, DType::kFp16);
  const int exponent = half() >> 10 & 31;
  const auto fraction = static_cast<float>(half() & 1023);
  const float sign = (half() & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

}  // namespace foreshard::exec
