#include "tests/testing/tree_model.h"

#include <string>

#include "planner/families/module_builder.h"
#include "proto/base/check.h"

namespace foreshard {
namespace {

using pb::Statement;

void MakeLastUse(pb::Module& module) {
  module.set_lifetime(pb::LAST_USE);
  for (pb::Module& child : *module.mutable_children()) MakeLastUse(child);
}

void AddNorm(pb::Module& parent, int64_t dim) {
  pb::Module& norm = AddChild(parent, "norm", "LayerNorm");
  AddParameter(norm, "weight", {dim});
  AddParameter(norm, "bias", {dim});
  norm.set_eps(1e-5);
}

void AddBlock(pb::Module& layers, int index, int64_t dim) {
  pb::Module& block = AddComposite(layers, std::to_string(index), "Block", {"x"});
  AddNorm(block, dim);
  AddLinear(block, "w1", dim, 4 * dim, /*bias=*/false);
  AddLinear(block, "w2", 4 * dim, dim, /*bias=*/false);
  AddCall(block, "norm", {"x"}, {"h"});
  AddCall(block, "w1", {"h"}, {"h1"});
  AddStatement(block, Statement::RELU, {"h1"}, {"h2"});
  AddCall(block, "w2", {"h2"}, {"h3"});
  AddStatement(block, Statement::ADD, {"x", "h3"}, {"y"});
  SetOutput(block, {"y"});
}

}  // namespace

pb::Model TreeModel(const TreeOptions& options) {
  pb::Model model;
  model.set_name("tree");
  model.set_family("tree");
  model.set_vocab_size(options.vocab);
  model.set_block_class("Block");
  pb::ModelInput& tokens = *model.add_inputs();
  tokens.set_name("t");
  tokens.set_kind(pb::ModelInput::TOKENS);
  pb::Module& root = *model.mutable_root();
  MakeComposite(root, "Model", {"t"});
  AddEmbedding(root, "emb", options.vocab, options.dim);
  pb::Module& layers = AddChild(root, "layers", "ModuleList");
  for (int i = 0; i < options.blocks; ++i) AddBlock(layers, i, options.dim);
  AddNorm(root, options.dim);
  AddLinear(root, "head", options.dim, options.vocab, /*bias=*/false);
  if (options.tie) FindModule(model, "head").mutable_params(0)->set_tie("emb.weight");
  AddCall(root, "emb", {"t"}, {"x0"});
  for (int i = 0; i < options.blocks; ++i) {
    AddCall(root, "layers." + std::to_string(i), {"x" + std::to_string(i)},
            {"x" + std::to_string(i + 1)});
  }
  AddCall(root, "norm", {"x" + std::to_string(options.blocks)}, {"n"});
  AddCall(root, "head", {"n"}, {"logits"});
  SetOutput(root, {"logits"});
  MakeLastUse(root);
  return model;
}

pb::Model TwoParameterModel() {
  pb::Model model;
  model.set_name("two");
  pb::Module& root = *model.mutable_root();
  MakeComposite(root, "Model", {});
  AddParameter(root, "first", {2, 6});
  AddParameter(root, "second", {5});
  for (const char* name : {"first", "second"}) {
    AddStatement(root, Statement::PARAM_SUM, {}, {name}).set_param(name);
  }
  AddStatement(root, Statement::ADD, {"first", "second"}, {"sum"});
  SetOutput(root, {"sum"});
  MakeLastUse(root);
  return model;
}

pb::Module& FindModule(pb::Model& model, std::string_view path) {
  pb::Module* module = model.mutable_root();
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    path = dot == std::string_view::npos ? "" : path.substr(dot + 1);
    pb::Module* found = nullptr;
    for (pb::Module& child : *module->mutable_children()) {
      if (child.name() == name) found = &child;
    }
    CHECK(found != nullptr) << "no module " << name;
    module = found;
  }
  return *module;
}

void Freeze(pb::Module& module) {
  for (pb::ModelParameter& p : *module.mutable_params()) p.set_frozen(true);
  for (pb::Module& child : *module.mutable_children()) Freeze(child);
}

}  // namespace foreshard
