#include "tools/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "proto/base/file.h"
#include "proto/io.h"

namespace foreshard {
namespace {

Status Print(std::FILE* stream, std::string_view name, std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stream);
  if (written == text.size() && std::fflush(stream) == 0) return OkStatus();
  return Unavailable(std::string(name) + ": cannot be written: " + std::strerror(errno));
}

// What `flag` asks for: a file, "-" = stdout, "" = nothing.
Status WriteTo(const std::string& file, std::string_view flag, std::string_view text) {
  if (file.empty()) return OkStatus();
  if (file == "-") return Print(stdout, "stdout", text);
  return AsOutputError(WriteFileAtomically(file, text)).At(flag);
}

}  // namespace

void AddOutputFlags(CLI::App& app, OutputFlags* flags) {
  app.add_option("--json", flags->json, "Write the result as JSON to FILE; - is stdout")
      ->type_name("FILE");
  app.add_flag("--quiet", flags->quiet, "Print no text for people");
}

void AddCsvFlag(CLI::App& app, OutputFlags* flags) {
  app.add_option("--csv", flags->csv, "Write a line for each choice as CSV to FILE; - is stdout")
      ->type_name("FILE");
}

Status CheckOutputs(const OutputFlags& flags) {
  if (flags.json.empty() || flags.json != flags.csv) return OkStatus();
  return InvalidArgument(fmt::format("--json, --csv: both would be written to {}",
                                     flags.json == "-" ? "stdout" : flags.json));
}

Status PrintText(const OutputFlags& flags, std::string_view text) {
  if (flags.quiet) return OkStatus();
  if (flags.json == "-" || flags.csv == "-") return Print(stderr, "stderr", text);
  return Print(stdout, "stdout", text);
}

Status WriteJson(const OutputFlags& flags, std::string_view json) {
  std::string text(json);
  if (!text.ends_with('\n')) text += '\n';
  return WriteTo(flags.json, "--json", text);
}

Status WriteJson(const OutputFlags& flags, const google::protobuf::Message& message) {
  if (flags.json.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ToJson(message));
  return WriteJson(flags, text);
}

Status WriteCsv(const OutputFlags& flags, std::string_view csv) {
  return WriteTo(flags.csv, "--csv", csv);
}

Status AsOutputError(const Status& status) {
  if (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kInvalidInput) {
    return InvalidArgument(status.message());
  }
  return status;
}

int TextWidth() {
  constexpr int kNarrowest = 60;
  constexpr int kWidest = 100;
  int columns = kWidest;
  winsize size{};
  if (const char* text = std::getenv("COLUMNS"); text != nullptr && std::atoi(text) > 0) {
    columns = std::atoi(text);
  } else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    columns = size.ws_col;
  }
  return std::clamp(columns, kNarrowest, kWidest);
}

}  // namespace foreshard
