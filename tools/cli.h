// The command line as a function, so that main() and tests run the same thing.
#pragma once

namespace foreshard {

// Parses and runs; returns the process's exit code. Errors are one line on stderr.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace foreshard
