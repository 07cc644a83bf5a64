#include "planner/families/hf_config.h"

#include <fmt/format.h>

#include <cmath>

namespace foreshard {
namespace {

using nlohmann::json;

bool Nests(const json& value) {
  if (!value.is_structured()) return false;
  for (const json& element : value) {
    if (element.is_structured()) return true;
  }
  return false;
}

// The value as JSON on one line, shortened: errors are for reading.
std::string Show(const json& value) {
  constexpr size_t kShown = 40;
  // Printing recurses as deep as a value nests, and a hostile file nests deep.
  if (Nests(value)) return fmt::format("nested values, {} at the top", value.size());
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

// The value as an integer if it is a number without a fractional part that int64_t can hold.
std::optional<int64_t> AsInteger(const json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t n = value.get<uint64_t>();
    if (n > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(n);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;  // 2^53: above it doubles skip integers
  const double x = value.get<double>();
  if (std::floor(x) != x || std::abs(x) > kExact) return std::nullopt;
  return static_cast<int64_t>(x);
}

bool Present(const json& object, std::string_view name) {
  const auto it = object.find(name);
  return it != object.end() && !it->is_null();
}

bool HasAny(const json& object, const FieldNames& names) {
  for (const std::string_view name : names) {
    if (Present(object, name)) return true;
  }
  return false;
}

// What the parser says without its class and number: "line 3, column 5: ...".
std::string ParserMessage(std::string_view what) {
  constexpr std::string_view kAt = "parse error at ";
  if (const size_t at = what.find(kAt); at != std::string_view::npos) {
    return std::string(what.substr(at + kAt.size()));
  }
  if (const size_t at = what.find("] "); at != std::string_view::npos) what.remove_prefix(at + 2);
  return std::string(what);
}

}  // namespace

StatusOr<json> ParseJsonText(std::string_view text, std::string_view origin) {
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    return InvalidInput(fmt::format("{}: not JSON: {}", origin, ParserMessage(e.what())));
  }
}

StatusOr<HfConfig> HfConfig::Parse(std::string_view text, std::string_view origin) {
  HfConfig config;
  config.origin_ = std::string(origin);
  ASSIGN_OR_RETURN(config.document_, ParseJsonText(text, origin));
  if (!config.document_.is_object()) {
    return config.ErrorAt("", Show(config.document_), "an object with the model's fields");
  }
  RETURN_IF_ERROR(config.SelectSection());
  RETURN_IF_ERROR(config.ReadModelType());
  return config;
}

Status HfConfig::SelectSection() {
  if (HasAny(document_, hf::kHiddenSize) || !Present(document_, "text_config")) return OkStatus();
  const json& nested = document_["text_config"];
  if (!nested.is_object()) return ErrorAt("/text_config", Show(nested), "an object");
  section_ = "/text_config";
  has_section_ = true;
  return OkStatus();
}

// A nested config may leave its type to the file's top level.
Status HfConfig::ReadModelType() {
  const bool nested = Present(fields(), "model_type");
  const json& owner = nested ? fields() : document_;
  const std::string pointer = (nested ? section_ : "") + "/model_type";
  constexpr std::string_view kExpected = "the name of a model family, such as \"llama\"";
  if (!Present(owner, "model_type")) return ErrorAt(pointer, "nothing", kExpected);
  const json& value = owner["model_type"];
  if (!value.is_string()) return ErrorAt(pointer, Show(value), kExpected);
  model_type_ = value.get<std::string>();
  return OkStatus();
}

const json& HfConfig::fields() const {
  return has_section_ ? document_.at("text_config") : document_;
}

const json* HfConfig::Find(const FieldNames& names, std::string* name) const {
  const json& object = fields();
  for (const std::string_view candidate : names) {
    if (!Present(object, candidate)) continue;
    *name = std::string(candidate);
    return &*object.find(candidate);
  }
  *name = std::string(names.front());
  return nullptr;
}

Status HfConfig::ErrorAt(std::string_view pointer, std::string_view found,
                         std::string_view expected) const {
  return InvalidInput(fmt::format("{}: {}: found {}, expected {}", origin_,
                                  pointer.empty() ? "/" : pointer, found, expected));
}

Status HfConfig::Error(const FieldNames& names, std::string_view expected) const {
  std::string name;
  const json* value = Find(names, &name);
  return ErrorAt(section_ + "/" + name, value == nullptr ? "nothing" : Show(*value), expected);
}

StatusOr<std::optional<int64_t>> HfConfig::OptionalSize(const FieldNames& names,
                                                        int64_t max) const {
  std::string name;
  const json* value = Find(names, &name);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> n = AsInteger(*value);
  if (!n || *n < 1 || *n > max) {
    return Error(names, fmt::format("an integer from 1 to {}", max));
  }
  return n;
}

StatusOr<int64_t> HfConfig::Size(const FieldNames& names, int64_t max) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> n, OptionalSize(names, max));
  if (!n) return Error(names, fmt::format("an integer from 1 to {}", max));
  return *n;
}

StatusOr<std::optional<double>> HfConfig::OptionalNumber(const FieldNames& names) const {
  std::string name;
  const json* value = Find(names, &name);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return Error(names, "a number");
  return std::optional<double>(value->get<double>());
}

StatusOr<std::optional<bool>> HfConfig::OptionalBool(const FieldNames& names) const {
  std::string name;
  const json* value = Find(names, &name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return Error(names, "true or false");
  return std::optional<bool>(value->get<bool>());
}

StatusOr<std::optional<std::string>> HfConfig::OptionalString(const FieldNames& names) const {
  std::string name;
  const json* value = Find(names, &name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Error(names, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

StatusOr<std::optional<HfConfig>> HfConfig::OptionalObject(const FieldNames& names) const {
  std::string name;
  const json* value = Find(names, &name);
  if (value == nullptr) return std::optional<HfConfig>();
  if (!value->is_object() || Nests(*value)) return Error(names, "an object of plain values");
  HfConfig object;
  object.document_ = *value;
  object.origin_ = origin_;
  object.section_ = section_ + "/" + name;
  object.model_type_ = model_type_;
  return std::optional<HfConfig>(std::move(object));
}

StatusOr<double> HfConfig::Positive(const FieldNames& names, std::optional<double> fallback) const {
  ASSIGN_OR_RETURN(const std::optional<double> x, OptionalNumber(names));
  if (x ? !(*x > 0) : !fallback) return Error(names, "a number above 0");
  return x ? *x : *fallback;
}

StatusOr<double> HfConfig::Number(const FieldNames& names, double fallback) const {
  ASSIGN_OR_RETURN(const std::optional<double> x, OptionalNumber(names));
  if (x && !(*x >= 0)) return Error(names, "a number, 0 or more");
  return x.value_or(fallback);
}

StatusOr<double> HfConfig::Probability(const FieldNames& names, double fallback) const {
  ASSIGN_OR_RETURN(const std::optional<double> x, OptionalNumber(names));
  if (x && !(*x >= 0 && *x < 1)) return Error(names, "a probability from 0 to below 1");
  return x.value_or(fallback);
}

Status HfConfig::Choice(const FieldNames& names, std::string_view only) const {
  ASSIGN_OR_RETURN(const auto found, OptionalString(names));
  if (!found || *found == only) return OkStatus();
  return Error(names, fmt::format("\"{}\"", only));
}

Status HfConfig::Flag(const FieldNames& names, bool only) const {
  ASSIGN_OR_RETURN(const auto found, OptionalBool(names));
  if (!found || *found == only) return OkStatus();
  return Error(names, only ? "true" : "false");
}

Status HfConfig::OnlyArchitecture(std::string_view class_name) const {
  ASSIGN_OR_RETURN(const auto found, Architecture());
  if (!found || *found == class_name) return OkStatus();
  return Error({"architectures"}, fmt::format("[\"{}\"], the one this version knows", class_name));
}

Status HfConfig::CheckTotal(double parameters) const {
  constexpr double kMaxParameters = 1e15;
  if (parameters <= kMaxParameters) return OkStatus();
  return Error(hf::kHiddenSize, fmt::format("a model below {:.0e} parameters, not {:.1e}",
                                            kMaxParameters, parameters));
}

StatusOr<std::optional<std::string>> HfConfig::Architecture() const {
  if (!Present(fields(), "architectures")) return std::optional<std::string>();
  const json& list = fields().at("architectures");
  const std::string pointer = section_ + "/architectures";
  if (!list.is_array()) return ErrorAt(pointer, Show(list), "a list of class names");
  if (list.empty()) return std::optional<std::string>();
  if (!list[0].is_string()) return ErrorAt(pointer + "/0", Show(list[0]), "a class name");
  return std::optional<std::string>(list[0].get<std::string>());
}

}  // namespace foreshard
