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

// A flag that takes one of `names`. Others are refused with the list and the nearest.
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, std::string* value,
                       const std::vector<std::string>& names, const std::string& help);

// Whether a flag may be given more than once, one value each time.
enum class Repeat { kNo, kYes };

// A flag that takes any text.
CLI::Option* AddTexts(CLI::App& app, const std::string& flag, std::vector<std::string>* values,
                      Repeat repeat, const std::string& help);

// A flag that takes one of `names`.
CLI::Option* AddChoices(CLI::App& app, const std::string& flag, std::vector<std::string>* values,
                        const std::vector<std::string>& names, Repeat repeat,
                        const std::string& help);

// A flag that takes an integer from 1 to `max`: 4096, 4,096 or 4e3.
CLI::Option* AddCounts(CLI::App& app, const std::string& flag, std::vector<int64_t>* values,
                       int64_t max, Repeat repeat, const std::string& help);

// A flag that takes a number, 0 or more; stays absent when not given.
void AddNumber(CLI::App& app, const std::string& flag, std::optional<double>* value,
               const std::string& help);

// A flag that takes true or false; stays absent when not given.
void AddTruth(CLI::App& app, const std::string& flag, std::optional<bool>* value,
              const std::string& help);

}  // namespace foreshard
