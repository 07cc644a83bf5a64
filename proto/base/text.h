// Small tools for strings: near misses for error messages, and a hash that never changes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace foreshard {

// Fewest insertions, deletions and replacements of one byte that turn `a` into `b`.
// O(|a| * |b|) time.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate that was probably meant by `word`: the nearest one (the first of equals), if at
// most a third of the word's letters, and at least one, are wrong.
std::optional<std::string> NearestMatch(std::string_view word,
                                        std::span<const std::string> candidates);

// FNV-1a, 64 bits: for identity, not for security.
constexpr uint64_t Fnv1a64(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace foreshard
