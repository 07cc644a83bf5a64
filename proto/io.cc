#include "proto/io.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "proto/base/file.h"

namespace foreshard {
namespace {

namespace gp = google::protobuf;
using gp::FieldDescriptor;
using Json = nlohmann::ordered_json;

// Messages within messages. Real models stay below 20; more would only exhaust the stack.
constexpr int kMaxDepth = 100;

enum class Format { kText, kBinary, kJson };

StatusOr<Format> FormatOf(const std::string& path) {
  if (path.ends_with(".textproto")) return Format::kText;
  if (path.ends_with(".pb")) return Format::kBinary;
  if (path.ends_with(".json")) return Format::kJson;
  return InvalidInput(path + ": unknown suffix; expected .textproto (text), .pb (binary) or .json");
}

// Keeps the first error of the text parser, as "origin:line:column: message".
class FirstError : public gp::io::ErrorCollector {
 public:
  explicit FirstError(std::string_view origin) : origin_(origin) {}
  void AddError(int line, gp::io::ColumnNumber column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = origin_;
    if (line >= 0) {  // both count from 0
      text_ += ":" + std::to_string(line + 1) + ":" + std::to_string(column + 1);
    }
    text_ += ": " + message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string origin_;
  std::string text_;
};

// Checks the grammar of a JSON text and how deep it nests, without building anything.
class JsonGrammar : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    error_ = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong"
    if (const size_t at = error_.find(": "); at != std::string::npos) error_.erase(0, at + 2);
    return false;
  }
  size_t position() const { return position_; }  // bytes read when the error was found
  const std::string& error() const { return error_; }

 private:
  bool Enter() {
    if (++depth_ <= kMaxDepth) return true;
    error_ = "nested deeper than " + std::to_string(kMaxDepth) + " levels";
    return false;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  size_t position_ = 0;
  std::string error_;
};

std::string LineAndColumn(std::string_view text, size_t bytes_read) {
  const std::string_view before = text.substr(0, bytes_read > 0 ? bytes_read - 1 : 0);
  const auto newlines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0
  return std::to_string(newlines + 1) + ":" + std::to_string(before.size() - line_start + 1);
}

std::string_view AsView(const gp::StringPiece& s) { return {s.data(), s.size()}; }

// Where the bytes stop being a message of this type: reads as the parser does, but keeps count.
class WireWalk {
 public:
  explicit WireWalk(std::string_view bytes)
      : input_(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  // False at the first thing that cannot be read; byte() and field() then say where.
  bool Message(const gp::Descriptor* type, int depth) {
    while (input_.BytesUntilLimit() != 0) {
      byte_ = input_.CurrentPosition();
      field_ = type->full_name();
      const uint32_t tag = input_.ReadTag();
      if (tag == 0) return input_.ConsumedEntireMessage() && depth == 0;
      const FieldDescriptor* field = type->FindFieldByNumber(static_cast<int>(tag >> 3));
      if (field != nullptr) field_ = field->full_name();
      if (!Value(tag & 7, field, depth)) return false;
    }
    return true;
  }
  int byte() const { return byte_; }
  const std::string& field() const { return field_; }

 private:
  bool Value(uint32_t wire_type, const FieldDescriptor* field, int depth) {
    uint64_t varint = 0;
    uint32_t fixed = 0;
    switch (wire_type) {
      case 0:
        return input_.ReadVarint64(&varint);
      case 1:
        return input_.ReadLittleEndian64(&varint);
      case 5:
        return input_.ReadLittleEndian32(&fixed);
      case 2:
        return Delimited(field, depth);
      default:
        return false;
    }
  }

  bool Delimited(const FieldDescriptor* field, int depth) {
    uint32_t size = 0;
    if (!input_.ReadVarint32(&size) || size > INT32_MAX) return false;
    const bool message = field != nullptr && field->message_type() != nullptr;
    if (!message) return input_.Skip(static_cast<int>(size));
    if (depth >= kMaxDepth) return false;
    const auto limit = input_.PushLimit(static_cast<int>(size));
    if (!Message(field->message_type(), depth + 1) || input_.BytesUntilLimit() != 0) return false;
    input_.PopLimit(limit);
    return true;
  }

  gp::io::CodedInputStream input_;
  int byte_ = 0;
  std::string field_;
};

// "gpu: field number 99" of the first field that the schema does not know, or nullopt.
std::optional<std::string> UnknownField(const gp::Message& message) {
  const gp::Reflection& reflection = *message.GetReflection();
  if (const gp::UnknownFieldSet& unknown = reflection.GetUnknownFields(message); !unknown.empty()) {
    return message.GetDescriptor()->name() + ": field number " +
           std::to_string(unknown.field(0).number());
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const gp::Message& part = field->is_repeated()
                                    ? reflection.GetRepeatedMessage(message, field, i)
                                    : reflection.GetMessage(message, field);
      if (auto unknown = UnknownField(part)) return unknown;
    }
  }
  return std::nullopt;
}

Status ParseBinary(std::string_view bytes, std::string_view origin, gp::Message& message) {
  const gp::LogSilencer silence;  // the library would print what the status says
  gp::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                 static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMaxDepth);
  if (!message.ParseFromCodedStream(&input) || !input.ConsumedEntireMessage()) {
    message.Clear();
    WireWalk walk(bytes);
    const bool framed = walk.Message(message.GetDescriptor(), 0);
    const std::string where = framed ? ": bad content, such as text that is not UTF-8"
                                     : ": broken or cut short at byte " +
                                           std::to_string(walk.byte()) + ", in " + walk.field();
    return InvalidInput(std::string(origin) + where + "; expected a binary " +
                        message.GetDescriptor()->full_name());
  }
  if (const auto unknown = UnknownField(message)) {
    message.Clear();
    return InvalidInput(std::string(origin) + ": unknown " + *unknown + " in what should be a " +
                        message.GetDescriptor()->full_name() +
                        " (another kind of file, or written by a newer version?)");
  }
  return OkStatus();
}

StatusOr<std::string> Serialize(Format format, const gp::Message& message) {
  std::string bytes;
  bool written = false;
  switch (format) {
    case Format::kText:
      written = gp::TextFormat::PrintToString(message, &bytes);
      break;
    case Format::kBinary:
      written = message.SerializeToString(&bytes);
      break;
    case Format::kJson:
      return ToJson(message);
  }
  if (!written) return Internal("cannot write a " + message.GetDescriptor()->full_name());
  return bytes;
}

}  // namespace

Status ReadMessage(const std::string& path, gp::Message& message) {
  ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  switch (format) {
    case Format::kText:
      return ParseText(content, path, message);
    case Format::kBinary:
      return ParseBinary(content, path, message);
    case Format::kJson:
      return ParseJson(content, path, message);
  }
  return Internal("unreachable");
}

Status WriteMessage(const std::string& path, const gp::Message& message) {
  const StatusOr<Format> format = FormatOf(path);
  if (!format.ok()) return InvalidArgument(format.status().message());
  ASSIGN_OR_RETURN(const std::string bytes, Serialize(*format, message));
  return WriteFileAtomically(path, bytes);
}

Status ParseText(std::string_view text, std::string_view origin, gp::Message& message) {
  if (text.size() > static_cast<size_t>(kMaxFileBytes)) {
    return InvalidInput(std::string(origin) + ": too large");
  }
  const gp::LogSilencer silence;
  FirstError error(origin);
  gp::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxDepth);
  gp::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (parser.Parse(&input, &message)) return OkStatus();
  message.Clear();
  return InvalidInput(error.text().empty() ? std::string(origin) + ": cannot be parsed"
                                           : error.text());
}

Status ParseJson(std::string_view text, std::string_view origin, gp::Message& message) {
  message.Clear();
  if (text.size() > static_cast<size_t>(kMaxFileBytes)) {
    return InvalidInput(std::string(origin) + ": too large");
  }
  JsonGrammar grammar;
  if (!Json::sax_parse(text.begin(), text.end(), &grammar)) {
    const std::string where =
        grammar.position() == 0 ? "" : ":" + LineAndColumn(text, grammar.position());
    return InvalidInput(std::string(origin) + where + ": " + grammar.error());
  }
  const gp::LogSilencer silence;
  gp::util::JsonParseOptions options;
  options.case_insensitive_enum_parsing = true;
  const auto status =
      gp::util::JsonStringToMessage(gp::StringPiece(text.data(), text.size()), &message, options);
  if (status.ok()) return OkStatus();
  message.Clear();
  return InvalidInput(std::string(origin) + ": " + std::string(AsView(status.message())));
}

}  // namespace foreshard
