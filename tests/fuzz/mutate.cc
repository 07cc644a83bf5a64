#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <string_view>

namespace foreshard::fuzz {
namespace {

// Values at which arithmetic and parsers tend to break.
constexpr std::string_view kNumbers[] = {"0",
                                         "1",
                                         "-1",
                                         "2147483647",
                                         "2147483648",
                                         "4294967296",
                                         "-2147483648",
                                         "1e308",
                                         "1e999",
                                         "0.5",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "18446744073709551616",
                                         "nan",
                                         "inf",
                                         "null",
                                         "\"\"",
                                         "[]",
                                         "{}",
                                         "true"};
constexpr size_t kMaxSize = 1 << 16;

// Below `bound`, or 0. std::uniform_int_distribution differs between libraries.
size_t Below(std::mt19937_64& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Puts one of kNumbers in place of the first number at or behind a random place.
void ReplaceNumber(std::string& text, std::mt19937_64& random) {
  const auto begin = std::find_if(text.begin() + static_cast<long>(Below(random, text.size())),
                                  text.end(), IsDigit);
  const auto end = std::find_if_not(begin, text.end(), IsDigit);
  const std::string_view number = kNumbers[Below(random, std::size(kNumbers))];
  text.replace(static_cast<size_t>(begin - text.begin()), static_cast<size_t>(end - begin), number);
}

// A stretch of `from`, put over or into `text`.
void CopyStretch(const std::string& from, std::string& text, std::mt19937_64& random) {
  const size_t begin = Below(random, from.size());
  const size_t length = std::min(from.size() - begin, Below(random, 256));
  const size_t at = Below(random, text.size());
  const size_t over = random() % 2 == 0 ? 0 : std::min(length, text.size() - at);
  text.replace(at, over, from.substr(begin, length));
}

void MutateOnce(const std::vector<std::string>& corpus, std::string& text,
                std::mt19937_64& random) {
  const size_t at = Below(random, text.size());
  switch (random() % 7) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << (random() % 8)));
      break;
    case 1:
      if (!text.empty()) text[at] = static_cast<char>(random());
      break;
    case 2:
      text.insert(at, 1, static_cast<char>(random()));
      break;
    case 3:
      text.erase(at, Below(random, 64));
      break;
    case 4:
    case 5:
      ReplaceNumber(text, random);
      break;
    default:
      CopyStretch(corpus[Below(random, corpus.size())], text, random);
      break;
  }
  if (text.size() > kMaxSize) text.resize(kMaxSize);
}

}  // namespace

std::string Mutant(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  std::string text = corpus[Below(random, corpus.size())];
  const uint64_t count = 1 + random() % 4;
  for (uint64_t i = 0; i < count; ++i) MutateOnce(corpus, text, random);
  return text;
}

}  // namespace foreshard::fuzz
