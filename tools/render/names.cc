#include "tools/render/names.h"

#include <cctype>

namespace foreshard {
namespace {

std::string Words(const std::string& enumerator) {
  std::string words;
  for (const char c : enumerator) {
    words += c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words.empty() ? "?" : words;
}

}  // namespace

std::string CategoryName(pb::Category category) {
  switch (category) {
    case pb::CAST:
      return "cast shard";
    case pb::AG_OUTPUT:
      return "all-gather output";
    case pb::UNSHARDED_PARAM:
      return "gathered param";
    case pb::UNSHARDED_GRAD:
      return "full gradient";
    case pb::RS_INPUT:
      return "reduce-scatter input";
    case pb::RS_OUTPUT:
      return "reduce-scatter output";
    default:
      return Words(pb::Category_Name(category));
  }
}

std::string PhaseName(pb::Phase phase) {
  return phase == pb::PHASE_UNSPECIFIED ? "-" : Words(pb::Phase_Name(phase));
}

}  // namespace foreshard
