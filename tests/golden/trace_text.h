// Names that traces spell in more than one way.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/golden/golden_record.h"

namespace foreshard::golden {

std::string Replace(std::string text, const std::string& from, const std::string& to);

// "torch.uint64" and "uint64" are one dtype.
std::string DTypeText(const nlohmann::json& name);

std::string TextOr(const nlohmann::json& value, const std::string& otherwise);

// A row of a unit's `params`; "{i}" in paths is `layer`.
ParameterLine ParameterOf(const nlohmann::json& row, const std::string& layer = "");

// "unsharded_grad layers.1": who holds the bytes. What lives through the whole run is not told
// apart by unit.
std::string HolderText(const std::string& category, const std::string& unit);

// Whether gradients that nothing is sharded of outlive their micro-batch: the recorder then calls
// all forms of them by one name.
bool KeepsWholeGradients(const nlohmann::json& document);
std::string WholeGradientText(const std::string& category);

}  // namespace foreshard::golden
