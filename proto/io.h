// Reading and writing messages as files. The suffix decides the format: .textproto (text),
// .pb (binary), .json (protobuf's JSON mapping, original field names).
#pragma once

#include <string>
#include <string_view>

#include "proto/base/status.h"

namespace google::protobuf {
class Message;
}

namespace foreshard {

// kNotFound for a missing file, kInvalidInput for unknown suffixes and content that does not
// parse; the message names file, line and column (text), byte (binary) and the field where known.
Status ReadMessage(const std::string& path, google::protobuf::Message& message);

// Writes a temporary file beside `path` and renames it, so a failed write loses nothing.
Status WriteMessage(const std::string& path, const google::protobuf::Message& message);

// The two text forms, from and to memory. `origin` names the text in errors.
Status ParseText(std::string_view text, std::string_view origin,
                 google::protobuf::Message& message);
Status ParseJson(std::string_view text, std::string_view origin,
                 google::protobuf::Message& message);
StatusOr<std::string> ToJson(const google::protobuf::Message& message);  // pretty, integer bytes

}  // namespace foreshard
