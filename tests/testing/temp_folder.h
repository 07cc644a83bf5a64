// A folder of its own for a test, removed with what is in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "proto/base/check.h"
#include "proto/base/file.h"

namespace foreshard {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "foreshard_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string Path(const std::string& name) const { return (path_ / name).string(); }

  // The path of a file with these bytes.
  std::string Write(const std::string& name, std::string_view bytes) const {
    CHECK(WriteFileAtomically(Path(name), bytes).ok()) << name;
    return Path(name);
  }

  int Count() const {
    const std::filesystem::directory_iterator files(path_);
    return static_cast<int>(std::distance(begin(files), end(files)));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace foreshard
