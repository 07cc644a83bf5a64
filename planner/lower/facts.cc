#include "planner/lower/facts.h"

#include <fmt/format.h>

#include <cmath>

namespace foreshard {
namespace {

// Of transformers' PretrainedConfig and rotary embeddings, where a file says nothing.
constexpr double kInitializerRange = 0.02;
constexpr double kTheta = 10000;

bool IsNorm(const std::string& class_name) {
  return class_name == "LayerNorm" || class_name.ends_with("RMSNorm");
}

void FillInitial(const pb::Model& model, const ModelGraph& graph, const GraphParameter& p,
                 pb::Initial& out) {
  const std::string& name = p.source->name();
  if (p.source->has_initial_deviation()) {
    out.set_normal(p.source->initial_deviation());
  } else if (name == "bias") {
    out.set_constant(0);
  } else if (name == "weight" && IsNorm(graph.modules[p.module].class_name)) {
    out.set_constant(1);
  } else {
    out.set_normal(model.initializer_range() > 0 ? model.initializer_range() : kInitializerRange);
  }
}

Status CheckDeviation(const std::string& where, double deviation) {
  if (std::isfinite(deviation) && deviation >= 0) return OkStatus();
  return InvalidInput(
      fmt::format("{}: found {}, expected a standard deviation of 0 or more", where, deviation));
}

Status CheckRotary(const pb::Rotary& r) {
  const auto check = [](const char* field, double value, bool right) {
    if (std::isfinite(value) && right) return OkStatus();
    return InvalidInput(
        fmt::format("rotary.{}: found {}, which makes no frequencies", field, value));
  };
  RETURN_IF_ERROR(check("theta", r.theta(), r.theta() >= 0));
  RETURN_IF_ERROR(check("factor", r.factor(), r.factor() >= 0));
  if (r.factor() == 0) return OkStatus();
  const double low = r.low_frequency_factor();
  const double high = r.high_frequency_factor();
  RETURN_IF_ERROR(check("low_frequency_factor", low, low > 0));
  RETURN_IF_ERROR(check("high_frequency_factor", high, high > low));
  return check("original_positions", static_cast<double>(r.original_positions()),
               r.original_positions() > 0);
}

bool HoldsFrequencies(const pb::ModelBuffer& b) {
  return b.shape_size() == 1 && (b.name() == "inv_freq" || b.name() == "original_inv_freq");
}

Status CheckBuffer(const std::string& where, const pb::ModelBuffer& b) {
  constexpr double kMaxElements = 1e12;
  double elements = 1;
  bool right = b.shape_size() <= Dims::kMax;
  for (const int64_t size : b.shape()) {
    right = right && size >= 1;
    elements *= static_cast<double>(size);
  }
  if (right && elements <= kMaxElements) return OkStatus();
  return InvalidInput(
      fmt::format("{}: found a shape of {} sizes, expected at most {} of 1 or more, "
                  "and {:.0e} elements",
                  where, b.shape_size(), Dims::kMax, kMaxElements));
}

}  // namespace

Status CheckFacts(const pb::Model& model, const ModelGraph& graph) {
  RETURN_IF_ERROR(CheckDeviation("initializer_range", model.initializer_range()));
  for (const GraphParameter& p : graph.parameters) {
    RETURN_IF_ERROR(CheckDeviation(p.path + ": initial_deviation", p.source->initial_deviation()));
  }
  for (const GraphModule& m : graph.modules) {
    for (const pb::ModelBuffer& b : m.source->buffers()) {
      RETURN_IF_ERROR(CheckBuffer(m.path + "." + b.name(), b));
    }
  }
  return CheckRotary(model.rotary());
}

void AddInitialValues(const pb::Model& model, const ModelGraph& graph, pb::Plan& plan) {
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    pb::Parameter& parameter = *plan.mutable_parameters(static_cast<int>(i));
    FillInitial(model, graph, graph.parameters[i], *parameter.mutable_initial());
  }
}

void AddModuleBuffer(const pb::Model& model, const std::string& module_path,
                     const pb::ModelBuffer& source, BufferId buffer, pb::Plan& plan) {
  pb::ModuleBuffer& row = *plan.add_module_buffers();
  row.set_path(module_path.empty() ? source.name() : module_path + "." + source.name());
  row.set_buffer(buffer);
  row.set_dtype(pb::FP32);
  row.mutable_shape()->CopyFrom(source.shape());
  if (!HoldsFrequencies(source)) return;
  const pb::Rotary& r = model.rotary();
  pb::RotaryFrequencies& rotary = *row.mutable_rotary();
  rotary.set_theta(r.theta() > 0 ? r.theta() : kTheta);
  if (r.factor() == 0) return;
  rotary.set_factor(r.factor());
  rotary.set_low_frequency_factor(r.low_frequency_factor());
  rotary.set_high_frequency_factor(r.high_frequency_factor());
  rotary.set_original_positions(r.original_positions());
}

}  // namespace foreshard
