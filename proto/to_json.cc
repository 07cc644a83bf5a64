#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "proto/io.h"

namespace foreshard {
namespace {

namespace gp = google::protobuf;
using gp::FieldDescriptor;
using Json = nlohmann::ordered_json;

// Message -> JSON by reflection. protobuf's own printer makes strings of 64-bit integers, which
// readers of numbers stumble over; every reader of the mapping takes them as numbers as well.
class JsonTree {
 public:
  explicit JsonTree(const gp::Message& message) : root_(Of(message)) {}
  const Json& root() const { return root_; }

 private:
  static Json Of(const gp::Message& message) {
    const gp::Descriptor& type = *message.GetDescriptor();
    std::vector<const FieldDescriptor*> fields;
    for (int i = 0; i < type.field_count(); ++i) fields.push_back(type.field(i));
    std::sort(fields.begin(), fields.end(),
              [](const auto* a, const auto* b) { return a->number() < b->number(); });
    const gp::Reflection& reflection = *message.GetReflection();
    Json object = Json::object();
    for (const FieldDescriptor* field : fields) {
      CHECK(!field->is_map()) << field->full_name() << ": maps have no stable order";
      if (field->is_repeated()) {
        Json array = Json::array();
        const int size = reflection.FieldSize(message, field);
        for (int i = 0; i < size; ++i) array.push_back(Element(message, *field, i));
        object[field->name()] = std::move(array);
      } else if (!field->has_presence() || reflection.HasField(message, field)) {
        object[field->name()] = Single(message, *field);
      }
    }
    return object;
  }

  static Json Single(const gp::Message& m, const FieldDescriptor& f) {
    const gp::Reflection& r = *m.GetReflection();
    switch (f.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return r.GetInt32(m, &f);
      case FieldDescriptor::CPPTYPE_INT64:
        return r.GetInt64(m, &f);
      case FieldDescriptor::CPPTYPE_UINT32:
        return r.GetUInt32(m, &f);
      case FieldDescriptor::CPPTYPE_UINT64:
        return r.GetUInt64(m, &f);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Real(r.GetDouble(m, &f));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return Real(r.GetFloat(m, &f));
      case FieldDescriptor::CPPTYPE_BOOL:
        return r.GetBool(m, &f);
      case FieldDescriptor::CPPTYPE_ENUM:
        return EnumName(f, r.GetEnumValue(m, &f));
      case FieldDescriptor::CPPTYPE_STRING:
        return r.GetString(m, &f);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Of(r.GetMessage(m, &f));
    }
    return nullptr;
  }

  static Json Element(const gp::Message& m, const FieldDescriptor& f, int i) {
    const gp::Reflection& r = *m.GetReflection();
    switch (f.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return r.GetRepeatedInt32(m, &f, i);
      case FieldDescriptor::CPPTYPE_INT64:
        return r.GetRepeatedInt64(m, &f, i);
      case FieldDescriptor::CPPTYPE_UINT32:
        return r.GetRepeatedUInt32(m, &f, i);
      case FieldDescriptor::CPPTYPE_UINT64:
        return r.GetRepeatedUInt64(m, &f, i);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Real(r.GetRepeatedDouble(m, &f, i));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return Real(r.GetRepeatedFloat(m, &f, i));
      case FieldDescriptor::CPPTYPE_BOOL:
        return r.GetRepeatedBool(m, &f, i);
      case FieldDescriptor::CPPTYPE_ENUM:
        return EnumName(f, r.GetRepeatedEnumValue(m, &f, i));
      case FieldDescriptor::CPPTYPE_STRING:
        return r.GetRepeatedString(m, &f, i);
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Of(r.GetRepeatedMessage(m, &f, i));
    }
    return nullptr;
  }

  // JSON has no literal for these; the mapping names them in strings.
  static Json Real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return value;
  }

  // A value that the schema does not name stays a number.
  static Json EnumName(const FieldDescriptor& field, int number) {
    const gp::EnumValueDescriptor* value = field.enum_type()->FindValueByNumber(number);
    if (value == nullptr) return number;
    std::string name = value->name();
    for (char& c : name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return name;
  }

  Json root_;
};

}  // namespace

StatusOr<std::string> ToJson(const gp::Message& message) {
  try {
    return JsonTree(message).root().dump(2) + "\n";
  } catch (const Json::exception& error) {  // text that is not UTF-8
    return InvalidInput(message.GetDescriptor()->full_name() + ": " + error.what());
  }
}

}  // namespace foreshard
