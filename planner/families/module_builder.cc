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

void SetOutput(pb::Module& module, ValueNames output) { Fill(output, module.mutable_output()); }

}  // namespace foreshard
