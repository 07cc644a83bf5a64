// Random numbers that depend on their place only: the same key and index give the same number
// whoever asks, in whatever order. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011), from Random123.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace foreshard::exec {

// One key of several parts, order mattering. The key of (a, b, c) is that of (key of (a, b), c) as
// parts are taken in one by one, from 0.
uint64_t RandomKey(std::initializer_list<uint64_t> parts);
uint64_t ExtendKey(uint64_t key, uint64_t part);

// Uniform in [0, 2^64).
uint64_t RandomBits(uint64_t key, uint64_t index);
// Uniform in [0, 1), 24 bits.
float RandomUniform(uint64_t key, uint64_t index);
// Mean 0, variance 1 (Box-Muller), from one index.
float RandomNormal(uint64_t key, uint64_t index);

}  // namespace foreshard::exec
