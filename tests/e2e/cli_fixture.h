// Files and checks that the command line tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/e2e/process.h"

namespace foreshard {

using Args = std::vector<std::string>;

inline constexpr const char* kTinyConfig =
    R"({"model_type": "llama", "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4})";

class CliTest : public testing::Test {
 protected:
  CliTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~CliTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // The flags of a small prediction, then `more`; of a flag given twice the last one counts.
  Args Predict(const Args& more = {}) const {
    return Merge({"predict", "--model", Write("tiny.json", kTinyConfig), "--cluster",
                  "dgx-a100-80g", "--world", "4", "--seq", "16"},
                 more);
  }
  Args Plan(const Args& more = {}) const {
    return Merge(
        {"plan", "--model", Write("tiny.json", kTinyConfig), "--world", "4", "--seq", "16"}, more);
  }
  // The same with another model file.
  Args PredictModel(const std::string& config) const {
    return Predict({"--model", Write("m.json", config)});
  }

  static Args Merge(Args args, const Args& more) {
    for (size_t i = 0; i < more.size(); i += 2) {
      const auto at = std::ranges::find(args, more[i]);
      if (at != args.end()) {
        *(at + 1) = more[i + 1];
      } else {
        args.insert(args.end(), {more[i], more[i + 1]});
      }
    }
    return args;
  }

 private:
  std::filesystem::path folder_;
};

// Fails unless the run ends with `code`, prints nothing on stdout and exactly one error line, which
// holds each of `parts`.
inline void ExpectError(const Args& args, int code, const std::vector<std::string>& parts) {
  const ProcessResult result = RunForeshard(args);
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, testing::StartsWith("foreshard: error: "));
  for (const std::string& part : parts) EXPECT_THAT(result.err, testing::HasSubstr(part));
}

}  // namespace foreshard
