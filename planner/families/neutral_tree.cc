#include "planner/families/neutral_tree.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "planner/families/hf_config.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

using nlohmann::json;

// Deeper trees than any model, so that recursion over a hostile file stays bounded.
constexpr int kMaxDepth = 64;
// Default of PyTorch's LayerNorm; RMSNorm is told to use the same.
constexpr double kEps = 1e-5;

// A value of the document and where it stands; what it should be is asked for by type.
class Field {
 public:
  Field(const json& value, std::string pointer, std::string_view origin)
      : value_(&value), pointer_(std::move(pointer)), origin_(origin) {}

  Status Expected(std::string_view expected) const {
    return InvalidInput(
        fmt::format("{}: {}: found {}, expected {}", origin_, pointer_, Show(), expected));
  }

  bool Has(const char* name) const {
    return value_->is_object() && value_->contains(name) && !(*value_)[name].is_null();
  }
  StatusOr<Field> Member(const char* name) const {
    if (!value_->is_object()) return Expected("an object");
    const auto it = value_->find(name);
    if (it == value_->end()) return Expected(fmt::format("a member \"{}\"", name));
    return Field(*it, pointer_ + "/" + name, origin_);
  }
  StatusOr<std::vector<Field>> Elements() const {
    if (!value_->is_array()) return Expected("an array");
    std::vector<Field> elements;
    for (size_t i = 0; i < value_->size(); ++i) {
      elements.emplace_back((*value_)[i], fmt::format("{}/{}", pointer_, i), origin_);
    }
    return elements;
  }
  StatusOr<std::string> Text() const {
    if (!value_->is_string()) return Expected("a string");
    return value_->get<std::string>();
  }
  StatusOr<bool> Bool() const {
    if (!value_->is_boolean()) return Expected("true or false");
    return value_->get<bool>();
  }
  StatusOr<int64_t> Size() const {
    constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
    if (!value_->is_number_integer()) return Expected("an integer");
    const int64_t size = value_->get<int64_t>();
    if (size < 0 || size > kMaxSize) return Expected("a size from 0 to 2^31 - 1");
    return size;
  }
  bool is_text() const { return value_->is_string(); }
  bool Is(const json& value) const { return *value_ == value; }

 private:
  // The value on one line. Only a flat one is written out: dumping recurses as deep as the file.
  std::string Show() const {
    if (value_->is_object()) return "an object";
    for (const json& element : *value_) {
      if (element.is_structured()) return "an array";
    }
    std::string text = value_->dump(-1, ' ', true, json::error_handler_t::replace);
    return text.size() > 40 ? text.substr(0, 40) + "..." : text;
  }

  const json* value_;
  std::string pointer_;
  std::string_view origin_;
};

StatusOr<std::string> TextMember(const Field& object, const char* name) {
  ASSIGN_OR_RETURN(const Field member, object.Member(name));
  return member.Text();
}

template <typename Repeated>
Status ReadSizes(const Field& object, const char* name, Repeated* sizes) {
  ASSIGN_OR_RETURN(const Field member, object.Member(name));
  ASSIGN_OR_RETURN(const std::vector<Field> elements, member.Elements());
  for (const Field& element : elements) {
    ASSIGN_OR_RETURN(const int64_t size, element.Size());
    sizes->Add(size);
  }
  return OkStatus();
}

// One name as a string, or several as an array.
template <typename Repeated>
Status ReadNames(const Field& object, const char* name, Repeated* names) {
  ASSIGN_OR_RETURN(const Field member, object.Member(name));
  if (member.is_text()) {
    ASSIGN_OR_RETURN(*names->Add(), member.Text());
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Field> elements, member.Elements());
  for (const Field& element : elements) {
    ASSIGN_OR_RETURN(*names->Add(), element.Text());
  }
  return OkStatus();
}

Status ReadParameter(const Field& field, pb::ModelParameter* parameter) {
  ASSIGN_OR_RETURN(*parameter->mutable_name(), TextMember(field, "name"));
  RETURN_IF_ERROR(ReadSizes(field, "shape", parameter->mutable_shape()));
  ASSIGN_OR_RETURN(const Field requires_grad, field.Member("requires_grad"));
  ASSIGN_OR_RETURN(const bool trainable, requires_grad.Bool());
  parameter->set_frozen(!trainable);
  if (field.Has("tie")) {
    ASSIGN_OR_RETURN(*parameter->mutable_tie(), TextMember(field, "tie"));
  }
  return OkStatus();
}

struct OpName {
  std::string_view name;
  pb::Statement::Op op;
};
constexpr std::array kOpNames = {
    OpName{"call", pb::Statement::CALL},
    OpName{"add", pb::Statement::ADD},
    OpName{"mul", pb::Statement::MUL},
    OpName{"relu", pb::Statement::RELU},
    OpName{"gelu", pb::Statement::GELU},
    OpName{"silu", pb::Statement::SILU},
    OpName{"chunk", pb::Statement::CHUNK},
    OpName{"split_heads", pb::Statement::SPLIT_HEADS},
    OpName{"merge_heads", pb::Statement::MERGE_HEADS},
    OpName{"repeat_kv", pb::Statement::REPEAT_KV},
    OpName{"sdpa", pb::Statement::ATTENTION},
    OpName{"param_sum", pb::Statement::PARAM_SUM},
};

Status ReadOp(const Field& field, pb::Statement* statement) {
  ASSIGN_OR_RETURN(const Field member, field.Member("op"));
  ASSIGN_OR_RETURN(const std::string name, member.Text());
  for (const OpName& known : kOpNames) {
    if (known.name == name) statement->set_op(known.op);
  }
  if (statement->op() != pb::Statement::OP_UNSPECIFIED) return OkStatus();
  std::string names;
  for (const OpName& known : kOpNames) names += fmt::format(" {}", known.name);
  return member.Expected("one of" + names);
}

Status ReadCount(const Field& field, const char* name, pb::Statement* statement) {
  ASSIGN_OR_RETURN(const Field count, field.Member(name));
  ASSIGN_OR_RETURN(const int64_t n, count.Size());
  if (n < 1) return count.Expected("at least 1");
  statement->set_n(n);
  return OkStatus();
}

Status ReadChunk(const Field& field, pb::Statement* statement) {
  RETURN_IF_ERROR(ReadCount(field, "n", statement));
  if (!field.Has("dim")) return OkStatus();
  ASSIGN_OR_RETURN(const Field dim, field.Member("dim"));
  return dim.Is(-1) ? OkStatus() : dim.Expected("-1, the last dimension");
}

Status ReadAttention(const Field& field, pb::Statement* statement) {
  ASSIGN_OR_RETURN(const Field causal, field.Member("causal"));
  ASSIGN_OR_RETURN(const bool is_causal, causal.Bool());
  statement->set_causal(is_causal);
  ASSIGN_OR_RETURN(const Field gqa, field.Member("gqa"));
  ASSIGN_OR_RETURN(const bool grouped, gqa.Bool());
  statement->set_grouped(grouped);
  ASSIGN_OR_RETURN(*statement->mutable_backend(), TextMember(field, "backend"));
  return OkStatus();
}

Status ReadStatement(const Field& field, pb::Statement* statement) {
  RETURN_IF_ERROR(ReadOp(field, statement));
  RETURN_IF_ERROR(ReadNames(field, "in", statement->mutable_in()));
  RETURN_IF_ERROR(ReadNames(field, "out", statement->mutable_out()));
  switch (statement->op()) {
    case pb::Statement::CALL: {
      ASSIGN_OR_RETURN(*statement->mutable_module(), TextMember(field, "module"));
      return OkStatus();
    }
    case pb::Statement::CHUNK:
      return ReadChunk(field, statement);
    case pb::Statement::SPLIT_HEADS:
      return ReadCount(field, "heads", statement);
    case pb::Statement::REPEAT_KV:
      return ReadCount(field, "n", statement);
    case pb::Statement::ATTENTION:
      return ReadAttention(field, statement);
    case pb::Statement::PARAM_SUM: {
      ASSIGN_OR_RETURN(*statement->mutable_param(), TextMember(field, "param"));
      return OkStatus();
    }
    default:
      return OkStatus();
  }
}

Status ReadForward(const Field& field, pb::Module* module) {
  RETURN_IF_ERROR(ReadNames(field, "inputs", module->mutable_inputs()));
  RETURN_IF_ERROR(ReadNames(field, "output", module->mutable_output()));
  ASSIGN_OR_RETURN(const Field forward, field.Member("forward"));
  ASSIGN_OR_RETURN(const std::vector<Field> statements, forward.Elements());
  for (const Field& statement : statements) {
    RETURN_IF_ERROR(ReadStatement(statement, module->add_forward()));
  }
  return OkStatus();
}

// A Sequential calls its children one after the other.
void ChainChildren(pb::Module* module) {
  std::string value = "x";
  module->add_inputs(value);
  for (int i = 0; i < module->children_size(); ++i) {
    pb::Statement* call = module->add_forward();
    call->set_op(pb::Statement::CALL);
    call->set_module(module->children(i).name());
    call->add_in(value);
    value = fmt::format("x{}", i + 1);
    call->add_out(value);
  }
  module->add_output(value);
}

Status ReadModule(const Field& field, int depth, pb::Module* module) {
  if (depth > kMaxDepth) return field.Expected(fmt::format("at most {} levels", kMaxDepth));
  ASSIGN_OR_RETURN(*module->mutable_name(), TextMember(field, "name"));
  ASSIGN_OR_RETURN(*module->mutable_class_(), TextMember(field, "class"));
  module->set_lifetime(pb::LAST_USE);
  if (module->class_() == "LayerNorm" || module->class_() == "RMSNorm") module->set_eps(kEps);
  ASSIGN_OR_RETURN(const Field params, field.Member("params"));
  ASSIGN_OR_RETURN(const std::vector<Field> parameters, params.Elements());
  for (const Field& parameter : parameters) {
    RETURN_IF_ERROR(ReadParameter(parameter, module->add_params()));
  }
  ASSIGN_OR_RETURN(const Field member, field.Member("children"));
  ASSIGN_OR_RETURN(const std::vector<Field> children, member.Elements());
  for (const Field& child : children) {
    RETURN_IF_ERROR(ReadModule(child, depth + 1, module->add_children()));
  }
  if (field.Has("forward")) return ReadForward(field, module);
  if (module->class_() == "Sequential") ChainChildren(module);
  return OkStatus();
}

// An int64 input is positions if it is called "p", else token ids; both are [batch, seq].
Status ReadInput(const Field& field, const json& tokens_shape, pb::ModelInput* input) {
  ASSIGN_OR_RETURN(*input->mutable_name(), TextMember(field, "name"));
  ASSIGN_OR_RETURN(const std::string dtype, TextMember(field, "dtype"));
  if (dtype != "int64") {
    input->set_kind(pb::ModelInput::FLOATS);
    return ReadSizes(field, "shape", input->mutable_shape());
  }
  input->set_kind(input->name() == "p" ? pb::ModelInput::POSITIONS : pb::ModelInput::TOKENS);
  ASSIGN_OR_RETURN(const Field shape, field.Member("shape"));
  return shape.Is(tokens_shape) ? OkStatus() : shape.Expected("[batch, seq] of the model");
}

// The class of the first list's children, which is what people wrap.
std::string BlockClass(const pb::Module& module) {
  if (module.class_() == "ModuleList" && module.children_size() > 0) {
    return module.children(0).class_();
  }
  for (const pb::Module& child : module.children()) {
    if (std::string found = BlockClass(child); !found.empty()) return found;
  }
  return "";
}

Status ReadModel(const Field& document, pb::Model* model) {
  ASSIGN_OR_RETURN(const Field tree, document.Member("tree"));
  RETURN_IF_ERROR(ReadModule(tree, 0, model->mutable_root()));
  model->set_block_class(BlockClass(model->root()));
  if (!document.Has("inputs") && !document.Has("batch")) return OkStatus();  // a tree alone
  ASSIGN_OR_RETURN(const Field member, document.Member("inputs"));
  ASSIGN_OR_RETURN(const std::vector<Field> inputs, member.Elements());
  ASSIGN_OR_RETURN(const Field batch_field, document.Member("batch"));
  ASSIGN_OR_RETURN(const int64_t batch, batch_field.Size());
  ASSIGN_OR_RETURN(const Field seq_field, document.Member("seq"));
  ASSIGN_OR_RETURN(const int64_t seq, seq_field.Size());
  for (const Field& input : inputs) {
    RETURN_IF_ERROR(ReadInput(input, json::array({batch, seq}), model->add_inputs()));
  }
  if (document.Has("vocab")) {
    ASSIGN_OR_RETURN(const Field vocab, document.Member("vocab"));
    ASSIGN_OR_RETURN(const int64_t size, vocab.Size());
    model->set_vocab_size(size);
  }
  return OkStatus();
}

}  // namespace

StatusOr<pb::Model> ModelFromNeutralTree(std::string_view json_text, std::string_view origin) {
  ASSIGN_OR_RETURN(const json document, ParseJsonText(json_text, origin));
  pb::Model model;
  model.set_name(std::filesystem::path(origin).stem().string());
  model.set_family("tree");
  RETURN_IF_ERROR(ReadModel(Field(document, "", origin), &model));
  return model;
}

}  // namespace foreshard
