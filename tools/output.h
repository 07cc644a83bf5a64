// Where a command's results go: text for people, JSON for programs.
#pragma once

#include <string>
#include <string_view>

#include "proto/base/status.h"

namespace CLI {
class App;
}
namespace google::protobuf {
class Message;
}

namespace foreshard {

struct OutputFlags {
  std::string json;  // file for the machine-readable result, "-" = stdout, "" = none
  bool quiet = false;
};

void AddOutputFlags(CLI::App& app, OutputFlags* flags);

// Writes text for people: to stdout, or to stderr when the JSON has stdout; nothing with --quiet.
Status PrintText(const OutputFlags& flags, std::string_view text);

// Writes what --json asks for, if it does.
Status WriteJson(const OutputFlags& flags, std::string_view json);
Status WriteJson(const OutputFlags& flags, const google::protobuf::Message& message);

// A failure to write, as a problem of the flag that named the file rather than of an input.
Status AsOutputError(const Status& status);

// Columns for text: of the terminal or $COLUMNS, from 60 to 100; 100 when nobody says.
int TextWidth();

}  // namespace foreshard
