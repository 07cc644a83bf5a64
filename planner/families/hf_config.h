// Typed reading of a Hugging Face config.json: aliases, null as absent, errors with JSON pointers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/status.h"

namespace foreshard {

// Parses JSON; errors are kInvalidInput, "ORIGIN: line L, column C: ...".
StatusOr<nlohmann::json> ParseJsonText(std::string_view text, std::string_view origin);

// Names of one field, in order of preference: the first that is present wins. Errors name the
// present one, or the first of the list when none is.
using FieldNames = std::vector<std::string_view>;

namespace hf {
// What families called the same quantity over the years.
inline const FieldNames kHiddenSize = {"hidden_size", "n_embd", "n_embed", "d_model", "dim"};
inline const FieldNames kLayers = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};
inline const FieldNames kHeads = {"num_attention_heads", "n_head", "n_heads", "num_heads"};
inline const FieldNames kKvHeads = {"num_key_value_heads", "num_kv_heads", "n_head_kv"};
inline const FieldNames kIntermediate = {"intermediate_size", "ffn_dim", "n_inner", "d_ff",
                                         "ffn_hidden_size"};
inline const FieldNames kPositions = {"max_position_embeddings", "n_positions", "n_ctx",
                                      "max_seq_len", "seq_length"};
}  // namespace hf

// More layers than any model by far; a module tree of more would only fill the host's memory.
inline constexpr int64_t kMaxLayers = 10000;

// One model's fields: the top level of the file, or its "text_config" when the sizes are there.
class HfConfig {
 public:
  // The largest size a field may have, so that products of two stay within int64_t.
  static constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;

  static StatusOr<HfConfig> Parse(std::string_view text, std::string_view origin);

  const std::string& model_type() const { return model_type_; }
  // Pointer of the object that is read: "" or "/text_config".
  const std::string& section() const { return section_; }

  // A positive integer up to `max`; 32000.0 counts as one. nullopt when absent or null.
  StatusOr<std::optional<int64_t>> OptionalSize(const FieldNames& names,
                                                int64_t max = kMaxSize) const;
  // The same for a field that must be there.
  StatusOr<int64_t> Size(const FieldNames& names, int64_t max = kMaxSize) const;
  StatusOr<std::optional<double>> OptionalNumber(const FieldNames& names) const;
  StatusOr<std::optional<bool>> OptionalBool(const FieldNames& names) const;
  StatusOr<std::optional<std::string>> OptionalString(const FieldNames& names) const;
  // The object that a field holds, to be read in the same way.
  StatusOr<std::optional<HfConfig>> OptionalObject(const FieldNames& names) const;
  // First element of "architectures". Only of the section that is read: the top level of a nested
  // file names the composed model, not this part of it.
  StatusOr<std::optional<std::string>> Architecture() const;

  // What several families ask in the same words. An absent field passes, or gives `fallback`.
  StatusOr<double> Number(const FieldNames& names, double fallback) const;
  StatusOr<double> Positive(const FieldNames& names, std::optional<double> fallback) const;
  StatusOr<double> Probability(const FieldNames& names, double fallback) const;
  Status Choice(const FieldNames& names, std::string_view only) const;  // one string is known
  Status Flag(const FieldNames& names, bool only) const;                // one value is known
  Status OnlyArchitecture(std::string_view class_name) const;
  // Refuses models whose byte counts would leave int64_t.
  Status CheckTotal(double parameters) const;

  // "ORIGIN: /pointer: found X, expected Y" for the present one of `names`.
  Status Error(const FieldNames& names, std::string_view expected) const;

 private:
  HfConfig() = default;
  Status SelectSection();
  Status ReadModelType();
  const nlohmann::json& fields() const;
  // The first of `names` that is present and not null, or null.
  const nlohmann::json* Find(const FieldNames& names, std::string* name) const;
  Status ErrorAt(std::string_view pointer, std::string_view found, std::string_view expected) const;

  nlohmann::json document_;
  std::string origin_;
  std::string section_;
  bool has_section_ = false;  // the fields are those of "text_config"
  std::string model_type_;
};

}  // namespace foreshard
