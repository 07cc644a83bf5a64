// What the README shows is what the program prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/e2e/cli_fixture.h"

namespace foreshard {
namespace {

class ReadmeTest : public CliTest {
 protected:
  static std::string Readme() {
    std::ifstream file(std::string(FORESHARD_SOURCE_DIR) + "/README.md");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // The arguments of the shown command that begins with `prompt`, and what is shown below it.
  struct Shown {
    Args args;
    std::string output;
  };
  // The first one after `heading`.
  static Shown Find(const std::string& prompt, const std::string& heading = "") {
    const std::string readme = Readme();
    const size_t begin = readme.find(prompt, readme.find(heading));
    EXPECT_NE(begin, std::string::npos) << prompt;
    if (begin == std::string::npos) return {};
    const size_t line_end = readme.find('\n', begin);
    const size_t block_end = readme.find("```", line_end);
    Shown shown;
    std::istringstream words(
        readme.substr(begin + prompt.size(), line_end - begin - prompt.size()));
    for (std::string word; words >> word;) {
      const bool file = word.starts_with("tests/");
      shown.args.push_back(file ? std::string(FORESHARD_SOURCE_DIR) + "/" + word : word);
    }
    shown.output = readme.substr(line_end + 1, block_end - line_end - 1);
    return shown;
  }
};

TEST_F(ReadmeTest, TheFirstPredictionIsWhatIsPrinted) {
  const Shown shown = Find("$ build/release/bin/foreshard ");
  const ProcessResult result = RunForeshard(shown.args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, shown.output);
}

TEST_F(ReadmeTest, TheTableOfChoicesIsWhatIsPrinted) {
  const Shown shown = Find("$ foreshard ");
  const ProcessResult result = RunForeshard(shown.args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith(shown.output + "\nAssumptions\n"));
}

TEST_F(ReadmeTest, TheTableOfStrategiesIsWhatIsPrinted) {
  const Shown shown = Find("$ foreshard ", "**Who should own what?**");
  const ProcessResult result = RunForeshard(shown.args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith(shown.output + "\nAssumptions\n"));
}

TEST_F(ReadmeTest, ExplanationsAreWhatIsPrinted) {
  Args row = Find("$ foreshard ").args;
  ASSERT_GE(row.size(), 8u);
  row.erase(std::find(row.begin(), row.end(), "--wrap"), row.end());
  Args block = row;
  block.insert(block.end(), {"--json", Path("block.json")});
  Args every4 = row;
  every4.insert(every4.end(), {"--wrap", "every:4", "--json", Path("every4.json")});
  ASSERT_EQ(RunForeshard(block).exit_code, 0);
  ASSERT_EQ(RunForeshard(every4).exit_code, 0);
  const std::string one = RunForeshard({"explain", Path("block.json")}).out;
  const std::string two = RunForeshard({"explain", Path("block.json"), Path("every4.json")}).out;
  const std::string readme = Readme();
  for (const std::string heading :
       {"Units over a steady step", "From the textbook to", "ledger\n"}) {
    const size_t begin = readme.find("\n" + heading);
    ASSERT_NE(begin, std::string::npos) << heading;
    const size_t end = std::min(readme.find("\n\n", begin + 1), readme.find("\n```", begin + 1));
    EXPECT_THAT(one + two, testing::HasSubstr(readme.substr(begin + 1, end - begin)));
  }
}

// Times and the machine differ from run to run; bytes do not.
TEST_F(ReadmeTest, TheLoopOfPredictionAndMeasurementPrintsWhatIsShown) {
  const std::string readme = Readme();
  const size_t begin = readme.find("```\nforeshard plan --model tests/exec");
  ASSERT_NE(begin, std::string::npos);
  std::istringstream block(readme.substr(begin + 4, readme.find("```", begin + 4) - begin - 4));
  ProcessResult last;
  for (std::string line; std::getline(block, line);) {
    Args args;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with("tests/")) word = std::string(FORESHARD_SOURCE_DIR) + "/" + word;
      if (word.ends_with(".pb")) word = Path(word);
      args.push_back(word);
    }
    args.erase(args.begin());
    last = RunForeshard(args);
    EXPECT_EQ(last.exit_code, 0) << line << last.err;
  }
  for (const std::string heading : {"Peaks, bytes\n", "Memory op by op\n", "Tolerance\n"}) {
    const size_t at = readme.find("\n" + heading, begin);
    ASSERT_NE(at, std::string::npos) << heading;
    const size_t end = std::min(readme.find("\n\n", at + 1), readme.find("\n```", at + 1));
    EXPECT_THAT(last.out, testing::HasSubstr(readme.substr(at, end - at)));
  }
}

}  // namespace
}  // namespace foreshard
