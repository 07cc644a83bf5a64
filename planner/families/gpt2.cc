#include "planner/families/gpt2.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "planner/families/module_builder.h"

namespace foreshard {
namespace {

using pb::Statement;

struct Gpt2Sizes {
  int64_t vocab = 0, hidden = 0, inner = 0, layers = 0, heads = 0, positions = 0;
  double initializer_range = 0.02;  // default of GPT2Config
  double eps = 0, residual_dropout = 0, embedding_dropout = 0, attention_dropout = 0;
  bool tie = true;
};

// Defaults are those of GPT2Config.
StatusOr<Gpt2Sizes> ReadSizes(const HfConfig& config) {
  Gpt2Sizes s;
  ASSIGN_OR_RETURN(s.vocab, config.Size({"vocab_size"}));
  ASSIGN_OR_RETURN(s.hidden, config.Size(hf::kHiddenSize));
  ASSIGN_OR_RETURN(s.layers, config.Size(hf::kLayers, kMaxLayers));
  ASSIGN_OR_RETURN(s.heads, config.Size(hf::kHeads));
  ASSIGN_OR_RETURN(s.positions, config.Size(hf::kPositions));
  ASSIGN_OR_RETURN(const auto inner, config.OptionalSize(hf::kIntermediate));
  s.inner = inner.value_or(4 * s.hidden);
  if (s.hidden % s.heads != 0) {
    return config.Error(hf::kHiddenSize, fmt::format("a multiple of n_head = {}", s.heads));
  }
  RETURN_IF_ERROR(config.Choice({"activation_function"}, "gelu_new"));
  RETURN_IF_ERROR(config.Flag({"add_cross_attention"}, false));
  RETURN_IF_ERROR(config.Flag({"reorder_and_upcast_attn"}, false));
  ASSIGN_OR_RETURN(s.initializer_range, config.Number({"initializer_range"}, s.initializer_range));
  ASSIGN_OR_RETURN(s.eps, config.Number({"layer_norm_epsilon"}, 1e-5));
  ASSIGN_OR_RETURN(s.residual_dropout, config.Probability({"resid_pdrop"}, 0.1));
  ASSIGN_OR_RETURN(s.embedding_dropout, config.Probability({"embd_pdrop"}, 0.1));
  ASSIGN_OR_RETURN(s.attention_dropout, config.Probability({"attn_pdrop"}, 0.1));
  ASSIGN_OR_RETURN(const auto tie, config.OptionalBool({"tie_word_embeddings"}));
  s.tie = tie.value_or(true);
  const double h = static_cast<double>(s.hidden);
  const double per_layer = 4 * h + 2 * static_cast<double>(s.inner);
  RETURN_IF_ERROR(config.CheckTotal(h * (static_cast<double>(s.vocab + s.positions) +
                                         per_layer * static_cast<double>(s.layers))));
  return s;
}

// What is added to the residual stream starts the smaller, the more layers add to it.
void AddResidualProjection(pb::Module& parent, int64_t in, const Gpt2Sizes& s) {
  AddConv1d(parent, "c_proj", in, s.hidden);
  pb::Module& projection = *parent.mutable_children(parent.children_size() - 1);
  projection.mutable_params(0)->set_initial_deviation(s.initializer_range /
                                                      std::sqrt(2 * static_cast<double>(s.layers)));
}

void AddAttention(pb::Module& block, const Gpt2Sizes& s) {
  pb::Module& m = AddComposite(block, "attn", "GPT2Attention", {"hidden_states"});
  AddConv1d(m, "c_attn", s.hidden, 3 * s.hidden);
  AddResidualProjection(m, s.hidden, s);
  AddCall(m, "c_attn", {"hidden_states"}, {"fused"});
  AddStatement(m, Statement::CHUNK, {"fused"}, {"query", "key", "value"}).set_n(3);
  for (const char* part : {"query", "key", "value"}) {
    AddStatement(m, Statement::SPLIT_HEADS, {part}, {part}).set_n(s.heads);
  }
  Statement& attend = AddStatement(m, Statement::ATTENTION, {"query", "key", "value"}, {"out"});
  attend.set_causal(true);
  attend.set_p(s.attention_dropout);
  AddStatement(m, Statement::MERGE_HEADS, {"out"}, {"out"});
  AddCall(m, "c_proj", {"out"}, {"out"});
  AddDropout(m, "out", s.residual_dropout);
  SetOutput(m, {"out"});
}

void AddMlp(pb::Module& block, const Gpt2Sizes& s) {
  pb::Module& m = AddComposite(block, "mlp", "GPT2MLP", {"hidden_states"});
  AddConv1d(m, "c_fc", s.hidden, s.inner);
  AddResidualProjection(m, s.inner, s);
  pb::Module& act = AddComposite(m, "act", "NewGELUActivation", {"x"});
  AddStatement(act, Statement::GELU_NEW, {"x"}, {"y"});
  SetOutput(act, {"y"});
  for (const char* child : {"c_fc", "act", "c_proj"}) {
    AddCall(m, child, {"hidden_states"}, {"hidden_states"});
  }
  AddDropout(m, "hidden_states", s.residual_dropout);
  SetOutput(m, {"hidden_states"});
}

void AddBlock(pb::Module& list, int64_t index, const Gpt2Sizes& s) {
  pb::Module& m = AddComposite(list, std::to_string(index), "GPT2Block", {"hidden_states"});
  AddLayerNorm(m, "ln_1", s.hidden, s.eps);
  AddAttention(m, s);
  AddLayerNorm(m, "ln_2", s.hidden, s.eps);
  AddMlp(m, s);
  AddStatement(m, Statement::ALIAS, {"hidden_states"}, {"residual"});
  AddCall(m, "ln_1", {"hidden_states"}, {"hidden_states"});
  AddCall(m, "attn", {"hidden_states"}, {"attn_output"});
  AddStatement(m, Statement::ADD, {"attn_output", "residual"}, {"hidden_states"});
  AddStatement(m, Statement::ALIAS, {"hidden_states"}, {"residual"});
  AddCall(m, "ln_2", {"hidden_states"}, {"hidden_states"});
  AddCall(m, "mlp", {"hidden_states"}, {"feed_forward"});
  AddStatement(m, Statement::ADD, {"residual", "feed_forward"}, {"hidden_states"});
  SetOutput(m, {"hidden_states"});
}

void AddTransformer(pb::Module& root, const Gpt2Sizes& s) {
  pb::Module& m = AddComposite(root, "transformer", "GPT2Model", {"input_ids"});
  AddEmbedding(m, "wte", s.vocab, s.hidden);
  AddEmbedding(m, "wpe", s.positions, s.hidden);
  pb::Module& blocks = AddChild(m, "h", "ModuleList");
  for (int64_t i = 0; i < s.layers; ++i) AddBlock(blocks, i, s);
  AddLayerNorm(m, "ln_f", s.hidden, s.eps);
  AddCall(m, "wte", {"input_ids"}, {"inputs_embeds"});
  AddStatement(m, Statement::POSITIONS, {}, {"position_ids"}).set_n(s.positions);
  AddCall(m, "wpe", {"position_ids"}, {"position_embeds"});
  AddStatement(m, Statement::ADD, {"inputs_embeds", "position_embeds"}, {"hidden_states"});
  AddDropout(m, "hidden_states", s.embedding_dropout);
  for (int64_t i = 0; i < s.layers; ++i) {
    AddCall(m, "h." + std::to_string(i), {"hidden_states"}, {"hidden_states"});
  }
  AddCall(m, "ln_f", {"hidden_states"}, {"hidden_states"});
  SetOutput(m, {"hidden_states"});
}

}  // namespace

StatusOr<pb::Model> Gpt2Model(const HfConfig& config) {
  RETURN_IF_ERROR(config.OnlyArchitecture("GPT2LMHeadModel"));
  ASSIGN_OR_RETURN(const Gpt2Sizes sizes, ReadSizes(config));
  pb::Model model = CausalLanguageModel("gpt2", "GPT2Block", sizes.vocab);
  model.set_initializer_range(sizes.initializer_range);
  pb::Module& root = *model.mutable_root();
  MakeComposite(root, "GPT2LMHeadModel", {"input_ids"});
  AddTransformer(root, sizes);
  AddHead(root, "transformer", sizes.hidden, sizes.vocab,
          sizes.tie ? "transformer.wte.weight" : "");
  return model;
}

}  // namespace foreshard
