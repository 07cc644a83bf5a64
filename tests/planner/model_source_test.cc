#include "planner/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/io.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kTiny =
    R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 4})";

class ModelSourceTest : public testing::Test {
 protected:
  ModelSourceTest()
      : folder_(fs::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::create_directories(folder_);
  }
  ~ModelSourceTest() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  fs::path folder_;
};

std::string LoadError(const std::string& source, StatusCode code) {
  const StatusOr<pb::Model> model = LoadModel(source);
  EXPECT_FALSE(model.ok());
  if (model.ok()) return "";
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  return model.status().message();
}

TEST_F(ModelSourceTest, HuggingFaceFileIsNamedAfterItsStem) {
  const StatusOr<pb::Model> model = LoadModel(Write("my-llama.json", kTiny));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->name(), "my-llama");
}

TEST_F(ModelSourceTest, FolderWithAConfigIsNamedAfterTheFolder) {
  Write("checkpoint/config.json", kTiny);
  const StatusOr<pb::Model> model = LoadModel((folder_ / "checkpoint").string());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->name(), "checkpoint");
}

TEST_F(ModelSourceTest, NestedConfigIsNamedByFileAndSection) {
  const StatusOr<pb::Model> model =
      LoadModel(Write("vlm.json", std::string(R"({"text_config": )") + kTiny + "}"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->name(), "vlm (text_config)");
}

TEST_F(ModelSourceTest, NativeFormatsReadTheSameModel) {
  const StatusOr<pb::Model> model = LoadModel(Write("m.json", kTiny));
  ASSERT_TRUE(model.ok());
  for (const char* name : {"n.textproto", "n.pb", "n.json"}) {
    const std::string path = (folder_ / name).string();
    ASSERT_TRUE(WriteMessage(path, *model).ok());
    const StatusOr<pb::Model> again = LoadModel(path);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->SerializeAsString(), model->SerializeAsString()) << name;
  }
}

TEST_F(ModelSourceTest, RepositoryFilesLoad) {
  for (const char* name : {"llama-2-7b", "llama-3-8b", "tiny-llama"}) {
    const std::string path = std::string(FORESHARD_SOURCE_DIR "/tests/data/models/") + name;
    const StatusOr<pb::Model> model = LoadModel(path + ".json");
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->name(), name);
  }
}

TEST_F(ModelSourceTest, RefusesJsonOfNoKnownKind) {
  EXPECT_THAT(LoadError(Write("x.json", R"({"a": 1})"), StatusCode::kInvalidInput),
              HasSubstr("x.json: found neither \"model_type\""));
  EXPECT_THAT(LoadError(Write("l.json", "[]"), StatusCode::kInvalidInput),
              HasSubstr("l.json: found neither \"model_type\""));
  EXPECT_THAT(LoadError(Write("t.json", "{\"model_type\": "), StatusCode::kInvalidInput),
              HasSubstr("t.json: not JSON: line 1"));
}

TEST_F(ModelSourceTest, RefusesFilesWithoutAModel) {
  LoadError(Write("notes.txt", "hello"), StatusCode::kInvalidInput);
  EXPECT_THAT(LoadError(Write("e.textproto", "name: 'x'"), StatusCode::kInvalidInput),
              HasSubstr("e.textproto: root: found nothing"));
}

TEST_F(ModelSourceTest, MissingSourcesSayWhatWasMeant) {
  EXPECT_EQ(LoadError("gone/m.json", StatusCode::kNotFound), "gone/m.json: no such file");
  EXPECT_THAT(LoadError("llama-2-7", StatusCode::kNotFound), HasSubstr("did you mean llama-2-7b?"));
  EXPECT_THAT(LoadError("zzzzzzzzzzzz", StatusCode::kNotFound), HasSubstr("`foreshard list`"));
  LoadError(folder_.string(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace foreshard
