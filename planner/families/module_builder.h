// Small helpers to write module trees of proto/model.proto down as code.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "proto/model.pb.h"

namespace foreshard {

using ValueNames = std::initializer_list<std::string_view>;

// A module with its own parameters only. References stay valid while their parent gets no more
// children.
pb::Module& AddChild(pb::Module& parent, std::string_view name, std::string_view class_name);

// A composite whose names live as local variables of a Python function do.
pb::Module& AddComposite(pb::Module& parent, std::string_view name, std::string_view class_name,
                         ValueNames inputs);
void MakeComposite(pb::Module& module, std::string_view class_name, ValueNames inputs);

void AddParameter(pb::Module& module, std::string_view name, std::initializer_list<int64_t> shape);
void AddLinear(pb::Module& parent, std::string_view name, int64_t in, int64_t out, bool bias);
void AddEmbedding(pb::Module& parent, std::string_view name, int64_t rows, int64_t width);

pb::Statement& AddStatement(pb::Module& module, pb::Statement::Op op, ValueNames in,
                            ValueNames out);
void AddCall(pb::Module& module, std::string_view child, ValueNames in, ValueNames out);
void SetOutput(pb::Module& module, ValueNames output);

}  // namespace foreshard
