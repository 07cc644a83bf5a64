#include "tools/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/text.h"
#include "tools/command.h"
#include "tools/exit_code.h"

namespace foreshard {
namespace {

constexpr const char* kDescription =
    "Foreshard predicts whether a model trains under PyTorch FSDP, how much memory each GPU\n"
    "holds at its worst moment and why, and how long a step takes and what it waits for.";

constexpr const char* kExample =
    "Example:\n"
    "  foreshard predict --model llama-2-7b --cluster dgx-a100-80g --world 8 --seq 4096\n\n"
    "`foreshard VERB --help` explains a verb and shows an example.\n\n";

// One line whatever the message holds: file names and values come from outside.
void PrintError(std::string_view message) {
  std::string line;
  for (const char c : message) {
    if (static_cast<unsigned char>(c) < 0x20) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  std::cout.flush();
  fmt::print(stderr, "foreshard: error: {}\n", line);
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  const std::optional<std::string> nearest = NearestMatch(word, names);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

std::vector<std::string> Verbs(const std::vector<Command>& commands) {
  std::vector<std::string> verbs;
  for (const Command& command : commands) verbs.push_back(command.app->get_name());
  return verbs;
}

// What is wrong with arguments that the parser could not place.
std::string ExtraArgument(const std::vector<Command>& commands, const CLI::App& app) {
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const std::vector<std::string> extras = app.remaining(true);
    std::vector<std::string> flags;
    for (const CLI::Option* option : command.app->get_options())
      flags.push_back(option->get_name());
    const std::string word = extras.empty() ? "" : extras.front();
    return fmt::format("{}: unexpected argument \"{}\"{}", command.app->get_name(), word,
                       DidYouMean(word.substr(0, word.find('=')), flags));
  }
  const std::vector<std::string> extras = app.remaining();
  const std::string word = extras.empty() ? "" : extras.front();
  const std::vector<std::string> verbs = Verbs(commands);
  return fmt::format("unknown command or flag \"{}\", expected one of {}{}", word,
                     fmt::join(verbs, ", "), DidYouMean(word, verbs));
}

std::string UsageMessage(const CLI::ParseError& error, const std::vector<Command>& commands,
                         const CLI::App& app) {
  // A word that fits nowhere explains more than what is missing because of it.
  if (!app.remaining(true).empty()) return ExtraArgument(commands, app);
  if (app.get_subcommands().empty()) {
    return fmt::format("no command, expected one of {}", fmt::join(Verbs(commands), ", "));
  }
  return error.what();
}

// The exit code if parsing ended the run: help, version, or a usage error.
std::optional<int> Parse(CLI::App& app, const std::vector<Command>& commands, int argc,
                         const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& help) {
    return app.exit(help, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    PrintError(UsageMessage(error, commands, app));
    return static_cast<int>(ExitCode::kUsage);
  }
}

int RunParsed(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const StatusOr<ExitCode> code = command.run();
    if (code.ok()) return static_cast<int>(*code);
    PrintError(code.status().message());
    return static_cast<int>(ExitCodeFor(code.status().code()));
  }
  return static_cast<int>(ExitCode::kInternal);
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app(kDescription, "foreshard");
  app.set_version_flag("--version", std::string("foreshard ") + FORESHARD_VERSION,
                       "Print the version and exit");
  app.require_subcommand(1);
  app.footer(kExample + ExitCodeHelp());
  const std::vector<Command> commands = {AddPredict(app), AddPlan(app),    AddCheck(app),
                                         AddSim(app),     AddRun(app),     AddExplain(app),
                                         AddCompare(app), AddInspect(app), AddList(app)};
  try {
    if (const std::optional<int> done = Parse(app, commands, argc, argv)) return *done;
    return RunParsed(commands);
  } catch (const std::bad_alloc&) {
    PrintError("out of memory");
    return static_cast<int>(ExitCode::kEnvironment);
  } catch (const std::exception& error) {
    PrintError(fmt::format("internal: {}", error.what()));
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace foreshard
