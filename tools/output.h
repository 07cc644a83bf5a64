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
  std::string csv;   // the same as a table, for commands that can
  bool quiet = false;
};

void AddOutputFlags(CLI::App& app, OutputFlags* flags);

void AddCsvFlag(CLI::App& app, OutputFlags* flags);

// Refuses what would mix two files on stdout.
Status CheckOutputs(const OutputFlags& flags);

// Writes text for people: to stdout, or to stderr when a file has stdout; nothing with --quiet.
Status PrintText(const OutputFlags& flags, std::string_view text);

// Writes what --json asks for, if it does.
Status WriteJson(const OutputFlags& flags, std::string_view json);
Status WriteJson(const OutputFlags& flags, const google::protobuf::Message& message);

// Writes what --csv asks for, if it does.
Status WriteCsv(const OutputFlags& flags, std::string_view csv);

// A failure to write, as a problem of the flag that named the file rather than of an input.
Status AsOutputError(const Status& status);

// Columns for text: of the terminal or $COLUMNS, from 60 to 100; 100 when nobody says.
int TextWidth();

}  // namespace foreshard
