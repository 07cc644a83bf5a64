#include "planner/families/rotary.h"

#include "proto/model.pb.h"

namespace foreshard {
namespace {

constexpr double kTheta = 10000;  // of transformers' rotary embeddings

// Frequencies from the slow to the fast: divided, blended, kept.
Status ReadLlama3(const HfConfig& scaling, pb::Rotary* rotary) {
  ASSIGN_OR_RETURN(const double factor, scaling.Positive({"factor"}, std::nullopt));
  ASSIGN_OR_RETURN(const double low, scaling.Positive({"low_freq_factor"}, std::nullopt));
  ASSIGN_OR_RETURN(const double high, scaling.Positive({"high_freq_factor"}, std::nullopt));
  ASSIGN_OR_RETURN(const int64_t positions, scaling.Size({"original_max_position_embeddings"}));
  if (!(high > low)) return scaling.Error({"high_freq_factor"}, "more than low_freq_factor");
  rotary->set_factor(factor);
  rotary->set_low_frequency_factor(low);
  rotary->set_high_frequency_factor(high);
  rotary->set_original_positions(positions);
  return OkStatus();
}

// All are divided: no wavelength is below 2 pi, so a border at 1 makes every frequency slow.
Status ReadLinear(const HfConfig& scaling, pb::Rotary* rotary) {
  ASSIGN_OR_RETURN(const double factor, scaling.Positive({"factor"}, std::nullopt));
  rotary->set_factor(factor);
  rotary->set_low_frequency_factor(1);
  rotary->set_high_frequency_factor(2);
  rotary->set_original_positions(1);
  return OkStatus();
}

// A rotation of a part of the head is another one.
Status CheckWhole(const HfConfig& config) {
  ASSIGN_OR_RETURN(const auto part, config.OptionalNumber({"partial_rotary_factor"}));
  return !part || *part == 1 ? OkStatus() : config.Error({"partial_rotary_factor"}, "1");
}

}  // namespace

Status ReadRotary(const HfConfig& config, int64_t head_dim, pb::Rotary* rotary) {
  rotary->set_head_dim(head_dim);
  RETURN_IF_ERROR(CheckWhole(config));
  ASSIGN_OR_RETURN(const double theta, config.Positive({"rope_theta"}, kTheta));
  rotary->set_theta(theta);
  ASSIGN_OR_RETURN(const auto scaling, config.OptionalObject({"rope_scaling", "rope_parameters"}));
  if (!scaling) return OkStatus();
  RETURN_IF_ERROR(CheckWhole(*scaling));
  ASSIGN_OR_RETURN(const double own_theta, scaling->Positive({"rope_theta"}, theta));
  rotary->set_theta(own_theta);
  const FieldNames kType = {"rope_type", "type"};
  ASSIGN_OR_RETURN(const auto type, scaling->OptionalString(kType));
  if (!type || *type == "default") return OkStatus();
  if (*type == "llama3") return ReadLlama3(*scaling, rotary);
  if (*type == "linear") return ReadLinear(*scaling, rotary);
  return scaling->Error(kType, "\"default\", \"linear\" or \"llama3\", those that are known");
}

}  // namespace foreshard
