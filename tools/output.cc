#include "tools/output.h"

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

}  // namespace

void AddOutputFlags(CLI::App& app, OutputFlags* flags) {
  app.add_option("--json", flags->json, "Write the result as JSON to FILE; - is stdout")
      ->type_name("FILE");
  app.add_flag("--quiet", flags->quiet, "Print no text for people");
}

Status PrintText(const OutputFlags& flags, std::string_view text) {
  if (flags.quiet) return OkStatus();
  if (flags.json == "-") return Print(stderr, "stderr", text);
  return Print(stdout, "stdout", text);
}

Status WriteJson(const OutputFlags& flags, std::string_view json) {
  if (flags.json.empty()) return OkStatus();
  std::string text(json);
  if (!text.ends_with('\n')) text += '\n';
  if (flags.json == "-") return Print(stdout, "stdout", text);
  return AsOutputError(WriteFileAtomically(flags.json, text)).At("--json");
}

Status WriteJson(const OutputFlags& flags, const google::protobuf::Message& message) {
  if (flags.json.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ToJson(message));
  return WriteJson(flags, text);
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
