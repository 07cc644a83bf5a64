#include "planner/families/module_builder.h"

namespace foreshard {
namespace {

template <typename Field>
void Fill(ValueNames names, Field* field) {
  for (const std::string_view name : names) field->Add(std::string(name));
}

}  // namespace

pb::Module& AddChild(pb::Module& parent, std::string_view name, std::string_view class_name) {
  pb::Module& child = *parent.add_children();
  child.set_name(std::string(name));
  child.set_class_(std::string(class_name));
  return child;
}

pb::Module& AddComposite(pb::Module& parent, std::string_view name, std::string_view class_name,
                         ValueNames inputs) {
  pb::Module& child = AddChild(parent, name, class_name);
  MakeComposite(child, class_name, inputs);
  return child;
}

void MakeComposite(pb::Module& module, std::string_view class_name, ValueNames inputs) {
  module.set_class_(std::string(class_name));
  module.set_lifetime(pb::PYTHON_LOCALS);
  Fill(inputs, module.mutable_inputs());
}

void AddParameter(pb::Module& module, std::string_view name, std::initializer_list<int64_t> shape) {
  pb::ModelParameter& parameter = *module.add_params();
  parameter.set_name(std::string(name));
  parameter.mutable_shape()->Add(shape.begin(), shape.end());
}

void AddLinear(pb::Module& parent, std::string_view name, int64_t in, int64_t out, bool bias) {
  pb::Module& linear = AddChild(parent, name, "Linear");
  AddParameter(linear, "weight", {out, in});
  if (bias) AddParameter(linear, "bias", {out});
}

void AddConv1d(pb::Module& parent, std::string_view name, int64_t in, int64_t out) {
  pb::Module& conv = AddChild(parent, name, "Conv1D");
  AddParameter(conv, "weight", {in, out});
  AddParameter(conv, "bias", {out});
}

void AddLayerNorm(pb::Module& parent, std::string_view name, int64_t width, double eps) {
  pb::Module& norm = AddChild(parent, name, "LayerNorm");
  AddParameter(norm, "weight", {width});
  AddParameter(norm, "bias", {width});
  norm.set_eps(eps);
}

void AddEmbedding(pb::Module& parent, std::string_view name, int64_t rows, int64_t width) {
  AddParameter(AddChild(parent, name, "Embedding"), "weight", {rows, width});
}

pb::Statement& AddStatement(pb::Module& module, pb::Statement::Op op, ValueNames in,
                            ValueNames out) {
  pb::Statement& statement = *module.add_forward();
  statement.set_op(op);
  Fill(in, statement.mutable_in());
  Fill(out, statement.mutable_out());
  return statement;
}

void AddCall(pb::Module& module, std::string_view child, ValueNames in, ValueNames out) {
  AddStatement(module, pb::Statement::CALL, in, out).set_module(std::string(child));
}

void AddDropout(pb::Module& module, std::string_view value, double p) {
  if (p > 0) AddStatement(module, pb::Statement::DROPOUT, {value}, {value}).set_p(p);
}

void SetOutput(pb::Module& module, ValueNames output) { Fill(output, module.mutable_output()); }

pb::Model CausalLanguageModel(std::string_view family, std::string_view block_class,
                              int64_t vocab) {
  pb::Model model;
  model.set_family(std::string(family));
  model.set_vocab_size(vocab);
  model.set_block_class(std::string(block_class));
  pb::ModelInput& tokens = *model.add_inputs();
  tokens.set_name("input_ids");
  tokens.set_kind(pb::ModelInput::TOKENS);
  return model;
}

void AddHead(pb::Module& root, std::string_view decoder, int64_t hidden, int64_t vocab,
             std::string_view tie) {
  AddLinear(root, "lm_head", hidden, vocab, /*bias=*/false);
  root.mutable_children(root.children_size() - 1)->mutable_params(0)->set_tie(std::string(tie));
  AddCall(root, decoder, {"input_ids"}, {"hidden_states"});
  AddCall(root, "lm_head", {"hidden_states"}, {"logits"});
  SetOutput(root, {"logits"});
}

}  // namespace foreshard
