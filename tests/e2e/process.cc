#include "tests/e2e/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "proto/base/check.h"

namespace foreshard {
namespace {

// An unnamed file: whatever amount is written to it, nobody waits for a reader.
class Capture {
 public:
  Capture() : file_(std::tmpfile()) { CHECK(file_ != nullptr) << "no temporary file"; }
  ~Capture() { std::fclose(file_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  int descriptor() const { return fileno(file_); }
  std::string Text() const {
    std::string text;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_;
};

[[noreturn]] void Become(const std::vector<std::string>& args, int out, int err) {
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::vector<char*> pointers;
  for (const std::string& arg : args) pointers.push_back(const_cast<char*>(arg.c_str()));
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  _exit(126);
}

}  // namespace

ProcessResult RunForeshard(const std::vector<std::string>& args) {
  std::vector<std::string> command = {FORESHARD_BIN_DIR "/foreshard"};
  command.insert(command.end(), args.begin(), args.end());
  const Capture out;
  const Capture err;
  const pid_t child = fork();
  CHECK(child >= 0) << "cannot start a process";
  if (child == 0) Become(command, out.descriptor(), err.descriptor());
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out.Text(), err.Text()};
}

}  // namespace foreshard
