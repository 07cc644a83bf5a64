// Flags whose values come from a list, and flags that count: one wording for all their errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace foreshard {

// Empty when `text` is one of `names`, else what is wrong: the list and the nearest.
std::string ChoiceError(const std::string& text, const std::vector<std::string>& names);
std::string ChoiceHelp(const std::string& help, const std::vector<std::string>& names);

// Of all of `text`; nullopt for what is no finite number.
std::optional<double> ParseNumber(const std::string& text);

// Whether a flag may be given more than once, one value each time.
enum class Repeat { kNo, kYes };

// A flag that takes any text.
CLI::Option* AddTexts(CLI::App& app, const std::string& flag, std::vector<std::string>* values,
                      Repeat repeat, const std::string& help);

// A flag that takes an integer from 1 to `max`: 4096, 4,096 or 4e3.
CLI::Option* AddCounts(CLI::App& app, const std::string& flag, std::vector<int64_t>* values,
                       int64_t max, Repeat repeat, const std::string& help);

}  // namespace foreshard
