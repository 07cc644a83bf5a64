#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "planner/families/family.h"
#include "planner/model_source.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json Tiny() {
  return {{"model_type", "llama"},   {"vocab_size", 64},       {"hidden_size", 16},
          {"intermediate_size", 24}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

pb::Model Build(const json& config) {
  StatusOr<pb::Model> model = ModelFromHfConfig(config.dump(), "m.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(model).value() : pb::Model();
}

std::string BuildError(const json& config) {
  const StatusOr<pb::Model> model = ModelFromHfConfig(config.dump(), "m.json");
  EXPECT_FALSE(model.ok());
  if (model.ok()) return "";
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidInput);
  return model.status().message();
}

struct Named {
  std::string path;
  const pb::ModelParameter* parameter;
};

void Collect(const pb::Module& module, const std::string& prefix, std::vector<Named>* out) {
  for (const pb::ModelParameter& p : module.params()) out->push_back({prefix + p.name(), &p});
  for (const pb::Module& child : module.children())
    Collect(child, prefix + child.name() + ".", out);
}

std::vector<Named> Parameters(const pb::Model& model) {
  std::vector<Named> all;
  Collect(model.root(), "", &all);
  return all;
}

int64_t Numel(const pb::ModelParameter& p) {
  int64_t n = 1;
  for (const int64_t size : p.shape()) n *= size;
  return n;
}

int64_t Count(const pb::Model& model) {
  int64_t total = 0;
  for (const Named& named : Parameters(model)) {
    if (named.parameter->tie().empty()) total += Numel(*named.parameter);
  }
  return total;
}

// "path 8x16" for each parameter.
std::vector<std::string> Shapes(const pb::Model& model) {
  std::vector<std::string> lines;
  for (const Named& named : Parameters(model)) {
    std::string line = named.path;
    for (int i = 0; i < named.parameter->shape_size(); ++i) {
      line += (i == 0 ? " " : "x") + std::to_string(named.parameter->shape(i));
    }
    lines.push_back(line);
  }
  return lines;
}

// "OP(in, in -> out, out)", with the child of calls in front.
std::vector<std::string> Forward(const pb::Module& module) {
  std::vector<std::string> lines;
  for (const pb::Statement& s : module.forward()) {
    std::string line = s.op() == pb::Statement::CALL ? s.module() : pb::Statement::Op_Name(s.op());
    line += "(";
    for (int i = 0; i < s.in_size(); ++i) line += (i == 0 ? "" : ", ") + s.in(i);
    line += " ->";
    for (const std::string& out : s.out()) line += " " + out;
    lines.push_back(line + ")");
  }
  return lines;
}

const pb::Module& Child(const pb::Module& module, const std::string& name) {
  for (const pb::Module& child : module.children()) {
    if (child.name() == name) return child;
  }
  ADD_FAILURE() << "no child " << name;
  return module;
}

const pb::Module& Layer0(const pb::Model& model) {
  return Child(Child(Child(model.root(), "model"), "layers"), "0");
}

TEST(Catalogue, ModelsHaveTheirPublishedParameterCounts) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"llama-2-7b", 6738415616},      {"llama-2-13b", 13015864320},
      {"llama-2-70b", 68976648192},    {"llama-3-8b", 8030261248},
      {"llama-3-70b", 70553706496},    {"llama-3.1-8b", 8030261248},
      {"llama-3.1-70b", 70553706496},  {"llama-3.1-405b", 405853388800},
      {"llama-3.2-1b", 1235814400},    {"llama-3.2-3b", 3212749824},
      {"tiny-llama-1.1b", 1100048384}, {"gpt2", 124439808},
      {"gpt2-medium", 354823168},      {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},
  };
  for (const auto& [name, count] : published) {
    const StatusOr<pb::Model> model = LoadModel(name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(Count(*model), count) << name;
    EXPECT_EQ(model->name(), name);
  }
  EXPECT_EQ(CatalogueModels().size(), published.size());
}

TEST(Llama, ParametersComeInRegistrationOrderWithTheirShapes) {
  const pb::Model model = Build(
      With(With(With(Tiny(), "num_hidden_layers", 1), "num_key_value_heads", 2), "head_dim", 6));
  EXPECT_THAT(Shapes(model), ElementsAre("model.embed_tokens.weight 64x16",
                                         "model.layers.0.self_attn.q_proj.weight 24x16",
                                         "model.layers.0.self_attn.k_proj.weight 12x16",
                                         "model.layers.0.self_attn.v_proj.weight 12x16",
                                         "model.layers.0.self_attn.o_proj.weight 16x24",
                                         "model.layers.0.mlp.gate_proj.weight 24x16",
                                         "model.layers.0.mlp.up_proj.weight 24x16",
                                         "model.layers.0.mlp.down_proj.weight 16x24",
                                         "model.layers.0.input_layernorm.weight 16",
                                         "model.layers.0.post_attention_layernorm.weight 16",
                                         "model.norm.weight 16", "lm_head.weight 64x16"));
}

TEST(Llama, Llama2Has291TensorsOfTheKnownShapes) {
  const StatusOr<pb::Model> model = LoadModel("llama-2-7b");
  ASSERT_TRUE(model.ok());
  const std::vector<std::string> shapes = Shapes(*model);
  EXPECT_EQ(shapes.size(), 3u + 32 * 9);
  EXPECT_THAT(shapes, testing::Contains("model.layers.31.mlp.down_proj.weight 4096x11008"));
  EXPECT_THAT(shapes, testing::Contains("lm_head.weight 32000x4096"));
}

TEST(Llama, GroupedHeadsShrinkKeysAndValues) {
  const StatusOr<pb::Model> model = LoadModel("llama-3-8b");
  ASSERT_TRUE(model.ok());
  const std::vector<std::string> shapes = Shapes(*model);
  EXPECT_THAT(shapes, testing::Contains("model.layers.0.self_attn.k_proj.weight 1024x4096"));
  EXPECT_THAT(shapes, testing::Contains("model.layers.0.self_attn.q_proj.weight 4096x4096"));
}

TEST(Llama, BiasesAreThereOnlyWhenAsked) {
  const int64_t none = Count(Build(Tiny()));
  // Per layer: q, k, v and o with 16 rows each; gate and up with 24, down with 16.
  EXPECT_EQ(Count(Build(With(Tiny(), "attention_bias", true))), none + 2 * 4 * 16);
  EXPECT_EQ(Count(Build(With(Tiny(), "mlp_bias", true))), none + 2 * (24 + 24 + 16));
}

TEST(Llama, TiedHeadNamesTheEmbedding) {
  const pb::Model tied = Build(With(Tiny(), "tie_word_embeddings", true));
  EXPECT_EQ(Parameters(tied).back().parameter->tie(), "model.embed_tokens.weight");
  EXPECT_EQ(Count(tied), Count(Build(Tiny())) - 64 * 16);
}

TEST(Llama, AbsentFieldsTakeTheClassDefaults) {
  const pb::Model model = Build(With(Tiny(), "head_dim", nullptr));
  EXPECT_EQ(model.family(), "llama");
  EXPECT_EQ(model.vocab_size(), 64);
  EXPECT_EQ(model.block_class(), "LlamaDecoderLayer");
  EXPECT_EQ(model.rotary().head_dim(), 4);
  const pb::Module& norm = Child(Layer0(model), "input_layernorm");
  EXPECT_EQ(norm.eps(), 1e-6);
  EXPECT_TRUE(norm.python_norm());
  EXPECT_EQ(norm.class_(), "LlamaRMSNorm");
  EXPECT_TRUE(Parameters(model).back().parameter->tie().empty());
  EXPECT_FALSE(Child(Layer0(model), "self_attn").forward(7).grouped());
}

TEST(Llama, RotaryTablesLiveOnTheDevice) {
  const pb::Model model = Build(Tiny());
  const pb::Module& rotary = Child(Child(model.root(), "model"), "rotary_emb");
  ASSERT_EQ(rotary.buffers_size(), 2);
  EXPECT_EQ(rotary.buffers(0).name(), "inv_freq");
  EXPECT_EQ(rotary.buffers(1).name(), "original_inv_freq");
  EXPECT_THAT(rotary.buffers(0).shape(), ElementsAre(2));
  EXPECT_EQ(rotary.buffers(0).dtype(), "fp32");
}

TEST(Llama, LayerForwardRebindsNamesAsTheSourceDoes) {
  const pb::Module layer = Layer0(Build(Tiny()));
  EXPECT_THAT(layer.inputs(), ElementsAre("hidden_states", "position_ids", "cos", "sin"));
  EXPECT_EQ(layer.lifetime(), pb::PYTHON_LOCALS);
  EXPECT_THAT(
      Forward(layer),
      ElementsAre(
          "ALIAS(hidden_states -> residual)", "input_layernorm(hidden_states -> hidden_states)",
          "self_attn(hidden_states, cos, sin -> hidden_states)",
          "ADD(residual, hidden_states -> hidden_states)", "ALIAS(hidden_states -> residual)",
          "post_attention_layernorm(hidden_states -> hidden_states)",
          "mlp(hidden_states -> hidden_states)", "ADD(residual, hidden_states -> hidden_states)"));
}

TEST(Llama, AttentionForwardSplitsTurnsAndMergesHeads) {
  const pb::Module attention =
      Child(Layer0(Build(With(Tiny(), "num_key_value_heads", 2))), "self_attn");
  EXPECT_THAT(
      Forward(attention),
      ElementsAre(
          "q_proj(hidden_states -> query_states)", "SPLIT_HEADS(query_states -> query_states)",
          "k_proj(hidden_states -> key_states)", "SPLIT_HEADS(key_states -> key_states)",
          "v_proj(hidden_states -> value_states)", "SPLIT_HEADS(value_states -> value_states)",
          "ROPE(query_states, key_states, cos, sin -> query_states key_states)",
          "ATTENTION(query_states, key_states, value_states -> attn_output)",
          "MERGE_HEADS(attn_output -> attn_output)", "o_proj(attn_output -> attn_output)"));
  EXPECT_EQ(attention.forward(1).n(), 4);
  EXPECT_EQ(attention.forward(3).n(), 2);
  EXPECT_TRUE(attention.forward(7).causal());
  EXPECT_TRUE(attention.forward(7).grouped());
}

TEST(Llama, MlpCallsItsActivationBetweenGateAndUp) {
  const pb::Module mlp = Child(Layer0(Build(Tiny())), "mlp");
  EXPECT_THAT(Forward(mlp), ElementsAre("gate_proj(x -> g)", "act_fn(g -> a)", "up_proj(x -> u)",
                                        "MUL(a, u -> m)", "down_proj(m -> y)"));
  const pb::Module& act = Child(mlp, "act_fn");
  EXPECT_EQ(act.class_(), "SiLU");
  EXPECT_THAT(Forward(act), ElementsAre("SILU(x -> y)"));
}

TEST(Llama, RootCallsTheDecoderAndTheHead) {
  const pb::Model model = Build(Tiny());
  EXPECT_THAT(Forward(model.root()),
              ElementsAre("model(input_ids -> hidden_states)", "lm_head(hidden_states -> logits)"));
  EXPECT_THAT(
      Forward(Child(model.root(), "model")),
      ElementsAre("embed_tokens(input_ids -> inputs_embeds)", "POSITIONS( -> position_ids)",
                  "ALIAS(inputs_embeds -> hidden_states)", "rotary_emb(position_ids -> cos sin)",
                  "layers.0(hidden_states, position_ids, cos, sin -> hidden_states)",
                  "layers.1(hidden_states, position_ids, cos, sin -> hidden_states)",
                  "norm(hidden_states -> hidden_states)"));
}

TEST(Llama, RefusesConfigsWithoutASizingField) {
  for (const std::string field : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                  "intermediate_size", "vocab_size"}) {
    json config = Tiny();
    config.erase(field);
    EXPECT_THAT(BuildError(config), HasSubstr("m.json: /" + field + ": found nothing")) << field;
  }
}

TEST(Llama, RefusesImpossibleSizes) {
  EXPECT_THAT(BuildError(With(Tiny(), "hidden_size", -16)), HasSubstr("/hidden_size: found -16"));
  EXPECT_THAT(BuildError(With(Tiny(), "vocab_size", 64.5)), HasSubstr("/vocab_size: found 64.5"));
  EXPECT_THAT(BuildError(With(Tiny(), "num_hidden_layers", 0)),
              HasSubstr("/num_hidden_layers: found 0"));
  EXPECT_THAT(BuildError(With(Tiny(), "num_hidden_layers", 2000000000)),
              HasSubstr("/num_hidden_layers: found 2000000000"));
  EXPECT_THAT(BuildError(With(Tiny(), "intermediate_size", 10000000000)),
              HasSubstr("/intermediate_size: found 10000000000"));
  EXPECT_THAT(BuildError(With(With(Tiny(), "hidden_size", 2147483640), "vocab_size", 2147483647)),
              HasSubstr("a model below 1e+15 parameters"));
}

TEST(Llama, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(BuildError(With(Tiny(), "num_attention_heads", 3)),
            "m.json: /hidden_size: found 16, expected a multiple of num_attention_heads = 3, or a "
            "head_dim");
  EXPECT_EQ(BuildError(With(Tiny(), "num_key_value_heads", 3)),
            "m.json: /num_key_value_heads: found 3, expected a divisor of num_attention_heads = 4");
  EXPECT_THAT(BuildError(With(Tiny(), "head_dim", 5)),
              HasSubstr("/head_dim: found 5, expected an even number"));
  EXPECT_THAT(BuildError(With(Tiny(), "num_attention_heads", 16)),
              HasSubstr("/hidden_size: found 16, expected an even head_dim instead of 1"));
}

TEST(Llama, RefusesOtherActivationsAndHeads) {
  EXPECT_EQ(BuildError(With(Tiny(), "hidden_act", "gelu")),
            "m.json: /hidden_act: found \"gelu\", expected \"silu\"");
  EXPECT_THAT(BuildError(With(Tiny(), "architectures", {"LlamaForSequenceClassification"})),
              HasSubstr("/architectures: found [\"LlamaForSequenceClassification\"]"));
}

TEST(Llama, RefusesOptionsOfTheWrongType) {
  EXPECT_THAT(BuildError(With(Tiny(), "tie_word_embeddings", "yes")),
              HasSubstr("/tie_word_embeddings: found \"yes\", expected true or false"));
  EXPECT_THAT(BuildError(With(Tiny(), "rms_norm_eps", "1e-5")),
              HasSubstr("/rms_norm_eps: found \"1e-5\", expected a number"));
  EXPECT_THAT(BuildError(With(Tiny(), "rms_norm_eps", -1)), HasSubstr("/rms_norm_eps: found -1"));
}

TEST(Families, UnknownTypeNamesTheNearestSupported) {
  EXPECT_EQ(
      BuildError(With(Tiny(), "model_type", "lama")),
      "m.json: /model_type: found \"lama\", expected a supported family: gpt2, llama (nearest: "
      "llama)");
}

TEST(Families, NestedTextConfigIsNamedInTheModel) {
  json nested = {{"model_type", "vlm"}, {"text_config", Tiny()}};
  EXPECT_EQ(Build(nested).name(), "text_config");
  EXPECT_EQ(Count(Build(nested)), Count(Build(Tiny())));
}

}  // namespace
}  // namespace foreshard
