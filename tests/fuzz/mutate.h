// Seeded damage to inputs, for compilers without libFuzzer.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace foreshard::fuzz {

// An input of the corpus with a few bytes, numbers or stretches changed. The same state of `random`
// gives the same bytes everywhere. REQUIRES: the corpus is not empty.
std::string Mutant(const std::vector<std::string>& corpus, std::mt19937_64& random);

}  // namespace foreshard::fuzz
