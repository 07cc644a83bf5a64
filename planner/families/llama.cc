#include "planner/families/llama.h"

#include <fmt/format.h>

#include <string>

#include "planner/families/hf_config.h"
#include "planner/families/module_builder.h"
#include "planner/families/rotary.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

using pb::Statement;

struct LlamaSizes {
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;  // default of LlamaConfig, as all that follow
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie = false;
};

Status ReadHeads(const HfConfig& config, LlamaSizes* sizes) {
  ASSIGN_OR_RETURN(sizes->heads, config.Size(hf::kHeads));
  ASSIGN_OR_RETURN(const auto kv_heads, config.OptionalSize(hf::kKvHeads));
  ASSIGN_OR_RETURN(const auto head_dim, config.OptionalSize({"head_dim"}));
  sizes->kv_heads = kv_heads.value_or(sizes->heads);
  if (sizes->heads % sizes->kv_heads != 0) {
    return config.Error(hf::kKvHeads,
                        fmt::format("a divisor of num_attention_heads = {}", sizes->heads));
  }
  if (!head_dim && sizes->hidden % sizes->heads != 0) {
    return config.Error(
        hf::kHiddenSize,
        fmt::format("a multiple of num_attention_heads = {}, or a head_dim", sizes->heads));
  }
  sizes->head_dim = head_dim.value_or(sizes->hidden / sizes->heads);
  if (sizes->head_dim % 2 == 0) return OkStatus();
  // Rotary positions turn pairs of elements.
  const std::string even = fmt::format("an even head_dim instead of {}", sizes->head_dim);
  return head_dim ? config.Error({"head_dim"}, "an even number")
                  : config.Error(hf::kHiddenSize, even);
}

StatusOr<LlamaSizes> ReadSizes(const HfConfig& config) {
  RETURN_IF_ERROR(config.OnlyArchitecture("LlamaForCausalLM"));
  RETURN_IF_ERROR(config.Choice({"hidden_act"}, "silu"));
  LlamaSizes sizes;
  ASSIGN_OR_RETURN(sizes.vocab, config.Size({"vocab_size"}));
  ASSIGN_OR_RETURN(sizes.hidden, config.Size(hf::kHiddenSize));
  ASSIGN_OR_RETURN(sizes.intermediate, config.Size(hf::kIntermediate));
  ASSIGN_OR_RETURN(sizes.layers, config.Size(hf::kLayers, kMaxLayers));
  RETURN_IF_ERROR(ReadHeads(config, &sizes));
  ASSIGN_OR_RETURN(const auto eps, config.OptionalNumber({"rms_norm_eps"}));
  ASSIGN_OR_RETURN(const auto attention_bias, config.OptionalBool({"attention_bias"}));
  ASSIGN_OR_RETURN(const auto mlp_bias, config.OptionalBool({"mlp_bias"}));
  ASSIGN_OR_RETURN(const auto tie, config.OptionalBool({"tie_word_embeddings"}));
  sizes.rms_norm_eps = eps.value_or(sizes.rms_norm_eps);
  if (!(sizes.rms_norm_eps >= 0)) return config.Error({"rms_norm_eps"}, "a number, 0 or more");
  sizes.attention_bias = attention_bias.value_or(false);
  sizes.mlp_bias = mlp_bias.value_or(false);
  sizes.tie = tie.value_or(false);
  const double per_layer =
      static_cast<double>(sizes.hidden) * (2.0 * (sizes.heads + sizes.kv_heads) * sizes.head_dim +
                                           3.0 * static_cast<double>(sizes.intermediate));
  const double total = 2.0 * sizes.vocab * sizes.hidden + per_layer * sizes.layers;
  RETURN_IF_ERROR(config.CheckTotal(total));
  return sizes;
}

void AddNorm(pb::Module& parent, std::string_view name, const LlamaSizes& sizes) {
  pb::Module& norm = AddChild(parent, name, "LlamaRMSNorm");
  AddParameter(norm, "weight", {sizes.hidden});
  norm.set_eps(sizes.rms_norm_eps);
  norm.set_python_norm(true);
}

void AddProjectedHeads(pb::Module& attention, std::string_view projection, std::string_view value,
                       int64_t heads) {
  AddCall(attention, projection, {"hidden_states"}, {value});
  // The projection's output and its heads are one storage under one name.
  AddStatement(attention, Statement::SPLIT_HEADS, {value}, {value}).set_n(heads);
}

void AddAttention(pb::Module& layer, const LlamaSizes& s) {
  pb::Module& m =
      AddComposite(layer, "self_attn", "LlamaAttention", {"hidden_states", "cos", "sin"});
  AddLinear(m, "q_proj", s.hidden, s.heads * s.head_dim, s.attention_bias);
  AddLinear(m, "k_proj", s.hidden, s.kv_heads * s.head_dim, s.attention_bias);
  AddLinear(m, "v_proj", s.hidden, s.kv_heads * s.head_dim, s.attention_bias);
  AddLinear(m, "o_proj", s.heads * s.head_dim, s.hidden, s.attention_bias);
  AddProjectedHeads(m, "q_proj", "query_states", s.heads);
  AddProjectedHeads(m, "k_proj", "key_states", s.kv_heads);
  AddProjectedHeads(m, "v_proj", "value_states", s.kv_heads);
  AddStatement(m, Statement::ROPE, {"query_states", "key_states", "cos", "sin"},
               {"query_states", "key_states"});
  Statement& attend = AddStatement(m, Statement::ATTENTION,
                                   {"query_states", "key_states", "value_states"}, {"attn_output"});
  attend.set_causal(true);
  attend.set_grouped(s.kv_heads != s.heads);
  AddStatement(m, Statement::MERGE_HEADS, {"attn_output"}, {"attn_output"});
  AddCall(m, "o_proj", {"attn_output"}, {"attn_output"});
  SetOutput(m, {"attn_output"});
}

void AddMlp(pb::Module& layer, const LlamaSizes& s) {
  pb::Module& m = AddComposite(layer, "mlp", "LlamaMLP", {"x"});
  AddLinear(m, "gate_proj", s.hidden, s.intermediate, s.mlp_bias);
  AddLinear(m, "up_proj", s.hidden, s.intermediate, s.mlp_bias);
  AddLinear(m, "down_proj", s.intermediate, s.hidden, s.mlp_bias);
  m.set_lifetime(pb::LAST_USE);  // one expression: nothing in it has a name
  pb::Module& act = AddComposite(m, "act_fn", "SiLU", {"x"});
  AddStatement(act, Statement::SILU, {"x"}, {"y"});
  SetOutput(act, {"y"});
  AddCall(m, "gate_proj", {"x"}, {"g"});
  AddCall(m, "act_fn", {"g"}, {"a"});
  AddCall(m, "up_proj", {"x"}, {"u"});
  AddStatement(m, Statement::MUL, {"a", "u"}, {"m"});
  AddCall(m, "down_proj", {"m"}, {"y"});
  SetOutput(m, {"y"});
}

void AddLayer(pb::Module& list, int64_t index, const LlamaSizes& s) {
  pb::Module& m = AddComposite(list, std::to_string(index), "LlamaDecoderLayer",
                               {"hidden_states", "position_ids", "cos", "sin"});
  AddAttention(m, s);
  AddMlp(m, s);
  AddNorm(m, "input_layernorm", s);
  AddNorm(m, "post_attention_layernorm", s);
  AddStatement(m, Statement::ALIAS, {"hidden_states"}, {"residual"});
  AddCall(m, "input_layernorm", {"hidden_states"}, {"hidden_states"});
  AddCall(m, "self_attn", {"hidden_states", "cos", "sin"}, {"hidden_states"});
  AddStatement(m, Statement::ADD, {"residual", "hidden_states"}, {"hidden_states"});
  AddStatement(m, Statement::ALIAS, {"hidden_states"}, {"residual"});
  AddCall(m, "post_attention_layernorm", {"hidden_states"}, {"hidden_states"});
  AddCall(m, "mlp", {"hidden_states"}, {"hidden_states"});
  AddStatement(m, Statement::ADD, {"residual", "hidden_states"}, {"hidden_states"});
  SetOutput(m, {"hidden_states"});
}

void AddRotaryEmbedding(pb::Module& parent, const LlamaSizes& s) {
  pb::Module& m = AddComposite(parent, "rotary_emb", "LlamaRotaryEmbedding", {"position_ids"});
  for (const char* name : {"inv_freq", "original_inv_freq"}) {
    pb::ModelBuffer& buffer = *m.add_buffers();
    buffer.set_name(name);
    buffer.add_shape(s.head_dim / 2);
    buffer.set_dtype("fp32");
  }
  AddStatement(m, Statement::ROTARY_TABLES, {"position_ids"}, {"cos", "sin"});
  SetOutput(m, {"cos", "sin"});
}

void AddDecoder(pb::Module& root, const LlamaSizes& s) {
  pb::Module& m = AddComposite(root, "model", "LlamaModel", {"input_ids"});
  AddEmbedding(m, "embed_tokens", s.vocab, s.hidden);
  pb::Module& layers = AddChild(m, "layers", "ModuleList");
  for (int64_t i = 0; i < s.layers; ++i) AddLayer(layers, i, s);
  AddNorm(m, "norm", s);
  AddRotaryEmbedding(m, s);
  AddCall(m, "embed_tokens", {"input_ids"}, {"inputs_embeds"});
  AddStatement(m, Statement::POSITIONS, {}, {"position_ids"});
  AddStatement(m, Statement::ALIAS, {"inputs_embeds"}, {"hidden_states"});
  AddCall(m, "rotary_emb", {"position_ids"}, {"cos", "sin"});
  for (int64_t i = 0; i < s.layers; ++i) {
    // A checkpointed layer holds the positions too, although nothing in it reads them.
    AddCall(m, "layers." + std::to_string(i), {"hidden_states", "position_ids", "cos", "sin"},
            {"hidden_states"});
  }
  AddCall(m, "norm", {"hidden_states"}, {"hidden_states"});
  SetOutput(m, {"hidden_states"});
}

}  // namespace

StatusOr<pb::Model> LlamaModel(const HfConfig& config) {
  ASSIGN_OR_RETURN(const LlamaSizes sizes, ReadSizes(config));
  pb::Model model = CausalLanguageModel("llama", "LlamaDecoderLayer", sizes.vocab);
  RETURN_IF_ERROR(ReadRotary(config, sizes.head_dim, model.mutable_rotary()));
  ASSIGN_OR_RETURN(const double range, config.Number({"initializer_range"}, 0));
  model.set_initializer_range(range);
  pb::Module& root = *model.mutable_root();
  MakeComposite(root, "LlamaForCausalLM", {"input_ids"});
  AddDecoder(root, sizes);
  AddHead(root, "model", sizes.hidden, sizes.vocab, sizes.tie ? "model.embed_tokens.weight" : "");
  return model;
}

}  // namespace foreshard
