// Runs a fuzz target without libFuzzer: every file of its corpus, then seeded mutants of them.
//   X_fuzz [-runs=N] [-seconds=S] [-seed=K] CORPUS_FOLDER
// An input that crashes the target, or keeps it busy for 20 s, is left in ./crash-input.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutate.h"

namespace foreshard::fuzz {
namespace {

constexpr unsigned kSlowSeconds = 20;
std::string current;  // the input that the target has

extern "C" void KeepInput(int signal) {
  const int file = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool kept = file >= 0 && write(file, current.data(), current.size()) >= 0;
  std::fprintf(stderr, "fuzz: signal %d, input %s\n", signal, kept ? "in crash-input" : "lost");
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunOn(std::string input) {
  current = std::move(input);
  alarm(kSlowSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  alarm(0);
}

std::vector<std::string> ReadCorpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

struct Options {
  int64_t runs = 0;
  int64_t seconds = 0;
  uint64_t seed = 1;
  std::string corpus;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string value = argument.substr(argument.find('=') + 1);
    if (argument.starts_with("-runs=")) {
      options.runs = std::atoll(value.c_str());
    } else if (argument.starts_with("-seconds=")) {
      options.seconds = std::atoll(value.c_str());
    } else if (argument.starts_with("-seed=")) {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else {
      options.corpus = argument;
    }
  }
  return options;
}

int Main(const Options& options) {
  for (int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGALRM}) std::signal(signal, KeepInput);
  const std::vector<std::string> corpus = ReadCorpus(options.corpus);
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz: no inputs in \"%s\"\n", options.corpus.c_str());
    return 2;
  }
  for (const std::string& input : corpus) RunOn(input);
  std::mt19937_64 random(options.seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  int64_t runs = 0;
  while (runs < options.runs || std::chrono::steady_clock::now() < end) {
    RunOn(Mutant(corpus, random));
    ++runs;
  }
  std::printf("fuzz: %zu inputs, %lld mutants\n", corpus.size(), static_cast<long long>(runs));
  return 0;
}

}  // namespace
}  // namespace foreshard::fuzz

int main(int argc, char** argv) {
  return foreshard::fuzz::Main(foreshard::fuzz::Parse(argc, argv));
}
