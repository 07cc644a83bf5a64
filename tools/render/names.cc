#include "tools/render/names.h"

#include <cctype>

#include "proto/base/dtype.h"

namespace foreshard {
namespace {

std::string Lower(std::string enumerator) {
  for (char& c : enumerator) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return enumerator;
}

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
    case pb::PARAM_GRAD:
      return "gradient of a part";
    case pb::RS_INPUT:
      return "reduce-scatter input";
    case pb::RS_OUTPUT:
      return "reduce-scatter output";
    case pb::RECOMPUTE:
      return "recomputed activation";
    case pb::POST_FORWARD_SHARD:
      return "shard kept after forward";
    default:
      return Words(pb::Category_Name(category));
  }
}

std::string PhaseName(pb::Phase phase) {
  return phase == pb::PHASE_UNSPECIFIED ? "-" : Words(pb::Phase_Name(phase));
}

std::string PhaseName(pb::Phase phase, int micro_batch) {
  return PhaseName(phase) + (micro_batch > 0 ? " " + std::to_string(micro_batch) : "");
}

std::string ReasonName(pb::AllGather::Reason reason) {
  switch (reason) {
    case pb::AllGather::REASON_FORWARD:
      return "forward";
    case pb::AllGather::REASON_BACKWARD:
      return "backward";
    case pb::AllGather::PREFETCH_BACKWARD_IMPLICIT:
      return "prefetch in backward";
    case pb::AllGather::PREFETCH_FORWARD_EXPLICIT:
      return "asked-for prefetch in forward";
    case pb::AllGather::PREFETCH_FORWARD_IMPLICIT:
      return "prefetch in forward";
    case pb::AllGather::PREFETCH_BACKWARD_EXPLICIT:
      return "asked-for prefetch in backward";
    default:
      return "-";
  }
}

std::string DTypeName(pb::DType dtype) { return std::string(Name(static_cast<DType>(dtype))); }

std::string LossName(pb::LossKind loss) { return Lower(pb::LossKind_Name(loss)); }

std::string OptimizerName(pb::OptimizerKind kind, pb::OptimizerImpl impl) {
  if (kind == pb::OPTIMIZER_NONE) return "none";
  return Lower(pb::OptimizerKind_Name(kind)) + " (" + Lower(pb::OptimizerImpl_Name(impl)) + ")";
}

}  // namespace foreshard
