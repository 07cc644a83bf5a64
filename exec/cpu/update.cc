#include "exec/cpu/update.h"

#include <algorithm>
#include <cmath>

#include "exec/convert.h"
#include "exec/cpu/chunk.h"
#include "exec/cpu/clip.h"
#include "exec/cpu/quantize.h"
#include "proto/oplib/optimizer_state.h"

namespace foreshard::exec {
namespace {

// What a step's constants come to after `step` steps.
struct AdamW {
  float shrink, lerp, beta2, complement2, root_correction, eps, step_size;
  AdamW(const UpdateParameters& u, double step)
      : shrink(static_cast<float>(1 - u.learning_rate * u.weight_decay)),
        lerp(static_cast<float>(1 - u.beta1)),
        beta2(static_cast<float>(u.beta2)),
        complement2(static_cast<float>(1 - u.beta2)),
        root_correction(static_cast<float>(std::sqrt(1 - std::pow(u.beta2, step)))),
        eps(static_cast<float>(u.eps)),
        step_size(static_cast<float>(u.learning_rate / (1 - std::pow(u.beta1, step)))) {}
};

// `roots` holds the square roots on return.
void Apply(const AdamW& a, const float* g, float* p, float* m, float* v, float* roots, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * a.lerp;
    v[i] = v[i] * a.beta2 + g[i] * g[i] * a.complement2;
    roots[i] = std::sqrt(v[i]);
    p[i] = p[i] * a.shrink - a.step_size * m[i] / (roots[i] / a.root_correction + a.eps);
  }
}

void Apply(const UpdateParameters& u, const float* g, float* p, float* momentum, int64_t n) {
  const auto decay = static_cast<float>(u.weight_decay);
  const auto keep = static_cast<float>(u.momentum);
  const auto rate = static_cast<float>(u.learning_rate);
  for (int64_t i = 0; i < n; ++i) {
    float d = g[i] + decay * p[i];
    if (momentum != nullptr) d = momentum[i] = keep * momentum[i] + d;
    p[i] -= rate * d;
  }
}

// The chunk of a slice that begins at element `begin`.
class SliceUpdate {
 public:
  SliceUpdate(const UpdateParameters& update, const UpdateParameters::Slice& slice,
              std::byte* roots, const Launch& launch)
      : update_(update), slice_(slice), roots_(roots), launch_(launch) {}

  void Run() {
    if (slice_.numel == 0) return;  // there may be no state
    double squares = 0;
    const bool adam = update_.rule != UpdateRule::kSgd;
    double step = 0;
    if (adam) step = *reinterpret_cast<float*>(State(0)) += 1;
    const AdamW constants(update_, step);
    for (int64_t begin = 0; begin < slice_.numel; begin += kChunk) {
      const int64_t n = std::min(kChunk, slice_.numel - begin);
      Chunk g(launch_.in[slice_.gradient].data, slice_.dtype, slice_.gradient_from + begin, n);
      Chunk p(launch_.out[slice_.parameter].data, slice_.dtype, slice_.parameter_from + begin, n);
      squares += SumOfSquares(g.data(), n);
      if (IsQuantized()) {
        RunAdamW8Bit(constants, g, p, begin, n);
      } else if (adam) {
        RunAdamW(constants, g, p, begin, n);
      } else {
        RunSgd(g, p, begin, n);
      }
      p.Store();
    }
    if (launch_.squared_norm != nullptr) *launch_.squared_norm += squares;
  }

 private:
  std::byte* State(int i) const { return launch_.out[slice_.state + i].data; }

  void RunAdamW(const AdamW& constants, Chunk& g, Chunk& p, int64_t begin, int64_t n) {
    Chunk m(State(1), update_.state, begin, n);
    Chunk v(State(2), update_.state, begin, n);
    float roots[kChunk];
    Apply(constants, g.data(), p.data(), m.data(), v.data(), roots, n);
    m.Store();
    v.Store();
    if (roots_ == nullptr) return;
    ConvertElements(roots, DType::kFp32, roots_ + begin * SizeOf(update_.state), update_.state, n);
  }

  bool IsQuantized() const {
    return update_.rule == UpdateRule::kAdamW8Bit &&
           oplib::IsQuantized(pb::ADAMW_8BIT, slice_.numel);
  }

  // The parameter moves by moments that are not rounded yet.
  void RunAdamW8Bit(const AdamW& constants, Chunk& g, Chunk& p, int64_t begin, int64_t n) {
    QuantizedMoment m(State(1), slice_.numel, SignedMap());
    QuantizedMoment v(State(2), slice_.numel, UnsignedMap());
    float first[kChunk];
    float second[kChunk];
    float roots[kChunk];
    m.Load(begin, n, first);
    v.Load(begin, n, second);
    Apply(constants, g.data(), p.data(), first, second, roots, n);
    m.Store(begin, n, first);
    v.Store(begin, n, second);
  }

  void RunSgd(Chunk& g, Chunk& p, int64_t begin, int64_t n) {
    if (slice_.state < 0) {
      Apply(update_, g.data(), p.data(), nullptr, n);
      return;
    }
    Chunk momentum(State(0), update_.state, begin, n);
    Apply(update_, g.data(), p.data(), momentum.data(), n);
    momentum.Store();
  }

  const UpdateParameters& update_;
  const UpdateParameters::Slice& slice_;
  std::byte* roots_;
  const Launch& launch_;
};

}  // namespace

void Update(const UpdateParameters& update, const Launch& launch) {
  for (size_t i = 0; i < update.slices.size(); ++i) {
    std::byte* roots = update.keeps_roots ? launch.scratch[i].data : nullptr;
    SliceUpdate(update, update.slices[i], roots, launch).Run();
  }
}

}  // namespace foreshard::exec
