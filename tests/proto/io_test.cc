#include "proto/io.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "proto/base/file.h"
#include "proto/cluster.pb.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace foreshard {
namespace {

namespace fs = std::filesystem;
using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kCluster = R"pb(
  name: "two"
  gpu {
    name: "g"
    arch: "sm80"
    sms: 108
    memory_bytes: 85899345920
    bf16_flops_per_second: 312e12
    efficiency { matmul: 0.7 attention: 0.1 memory: 0.3333333333333333 }
  }
  node { gpus: 8 link_step_seconds: 2.5e-6 }
  nodes: 0
)pb";

constexpr std::string_view kModel = R"pb(
  name: "tiny"
  family: "tree"
  root {
    class: "Net"
    children {
      name: "fc"
      class: "Linear"
      params { name: "weight" shape: 4 shape: 8 }
    }
    inputs: "x"
    forward { op: CALL module: "fc" in: "x" out: "y" }
    forward { op: RELU in: "y" out: "y" }
    output: "y"
    lifetime: PYTHON_LOCALS
  }
  inputs { name: "x" kind: FLOATS shape: 2 shape: 8 requires_grad: true }
)pb";

template <typename M>
M Parsed(std::string_view text) {
  M message;
  const Status status = ParseText(text, "test", message);
  EXPECT_TRUE(status.ok()) << status.message();
  return message;
}

// A model whose root has `depth` modules below it, one in the other.
pb::Model DeepModel(int depth) {
  pb::Model model;
  pb::Module* module = model.mutable_root();
  for (int i = 0; i < depth; ++i) module = module->add_children();
  return model;
}

class IoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "foreshard_io_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Written(const std::string& name, std::string_view bytes) const {
    EXPECT_TRUE(WriteFileAtomically(Path(name), bytes).ok());
    return Path(name);
  }
  template <typename M>
  void ExpectRoundTrip(const M& message) {
    for (const char* name : {"m.textproto", "m.pb", "m.json"}) {
      SCOPED_TRACE(name);
      const Status written = WriteMessage(Path(name), message);
      ASSERT_TRUE(written.ok()) << written.message();
      M read;
      const Status status = ReadMessage(Path(name), read);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(MessageDifferencer::Equals(read, message)) << read.DebugString();
    }
  }

  fs::path folder_;
};

TEST_F(IoTest, ClusterReadsBackInEveryFormat) { ExpectRoundTrip(Parsed<pb::Cluster>(kCluster)); }

TEST_F(IoTest, ModelReadsBackInEveryFormat) { ExpectRoundTrip(Parsed<pb::Model>(kModel)); }

TEST_F(IoTest, ExtremeNumbersReadBackInEveryFormat) {
  pb::Plan plan;
  plan.mutable_header()->set_model_hash(std::numeric_limits<uint64_t>::max());
  plan.mutable_header()->set_parameter_count(std::numeric_limits<int64_t>::max());
  plan.mutable_header()->set_model_flops(std::numeric_limits<double>::denorm_min());
  for (const int64_t n : {std::numeric_limits<int64_t>::min(), int64_t{1} << 53, int64_t{-1}}) {
    plan.add_parameters()->add_shape(n);
  }
  for (const double d : {0.1, 1e300, std::numeric_limits<double>::infinity()}) {
    plan.add_kernels()->set_scalar(d);
  }
  ExpectRoundTrip(plan);
}

TEST_F(IoTest, UnknownSuffixNamesTheThree) {
  pb::Cluster cluster;
  const std::string path = Written("c.yaml", "");
  const Status read = ReadMessage(path, cluster);
  EXPECT_EQ(read.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(read.message(), HasSubstr(".textproto (text), .pb (binary) or .json"));
  EXPECT_EQ(WriteMessage(path, cluster).code(), StatusCode::kInvalidArgument);
}

TEST_F(IoTest, MissingFileIsNotFound) {
  pb::Cluster cluster;
  EXPECT_EQ(ReadMessage(Path("none.pb"), cluster).code(), StatusCode::kNotFound);
}

TEST_F(IoTest, TextErrorsNameFileLineAndColumn) {
  pb::Cluster cluster;
  const std::string path = Written("c.textproto", "name: \"x\"\ngpu {\n  sms: many\n}\n");
  const Status status = ReadMessage(path, cluster);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), StartsWith(path + ":3:8: "));
}

TEST_F(IoTest, CutBinaryNamesByteAndField) {
  std::string bytes = Parsed<pb::Cluster>(kCluster).SerializeAsString();
  // name: tag, length, "two" = 5; gpu: tag, length = 2, name 3, arch 6, sms 2; so its memory_bytes
  // starts at byte 18 and is cut.
  bytes.resize(20);
  pb::Cluster cluster;
  const std::string path = Written("c.pb", bytes);
  const Status status = ReadMessage(path, cluster);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), StartsWith(path + ": broken or cut short at byte 18, in "));
  EXPECT_THAT(status.message(), HasSubstr("foreshard.pb.Gpu.memory_bytes"));
}

TEST_F(IoTest, EveryCutOfABinaryIsRefusedOrShorter) {
  const std::string bytes = Parsed<pb::Model>(kModel).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    pb::Model model;
    const Status status = ReadMessage(Written("m.pb", bytes.substr(0, size)), model);
    if (status.ok()) {
      EXPECT_EQ(model.ByteSizeLong(), size);
    } else {
      EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
    }
  }
}

TEST_F(IoTest, BinaryOfAnotherMessageIsRefused) {
  pb::Plan plan;
  plan.add_programs()->set_name("first");  // field 14, which a cluster does not have
  pb::Cluster cluster;
  const Status status = ReadMessage(Written("c.pb", plan.SerializeAsString()), cluster);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("unknown Cluster: field number 14"));
}

TEST_F(IoTest, BinaryNeedsUtf8) {
  pb::Cluster cluster;
  const Status status = ReadMessage(Written("c.pb", "\x0a\x01\xff"), cluster);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("UTF-8"));
}

TEST_F(IoTest, DeepNestingIsRefusedInEveryFormat) {
  constexpr int kDepth = 20'000;
  std::string text, json;
  for (int i = 0; i < kDepth; ++i) text += "children{", json += "{\"children\":[";
  pb::Module module;
  EXPECT_EQ(ParseText(text, "t", module).code(), StatusCode::kInvalidInput);
  const Status of_json = ParseJson(json, "j", module);
  EXPECT_EQ(of_json.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(of_json.message(), HasSubstr("deeper than 100"));
  const std::string unclosed(100'000, '[');
  EXPECT_EQ(ParseJson(unclosed, "j", module).code(), StatusCode::kInvalidInput);

  std::string bytes;  // each level wraps the bytes below it as field 4, children
  for (int i = 0; i < 200; ++i) {
    pb::Module level;
    level.GetReflection()->MutableUnknownFields(&level)->AddLengthDelimited(4, bytes);
    bytes = level.SerializeAsString();
  }
  EXPECT_EQ(ReadMessage(Written("m.pb", bytes), module).code(), StatusCode::kInvalidInput);
}

TEST_F(IoTest, WhatModelsNeedIsNotTooDeep) { ExpectRoundTrip(DeepModel(40)); }

TEST(ParseText, UnknownFieldIsRefused) {
  pb::Cluster cluster;
  const Status status = ParseText("gpu { smss: 3 }", "c", cluster);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), StartsWith("c:1:"));
  EXPECT_THAT(status.message(), HasSubstr("smss"));
}

TEST(ParseText, ReplacesWhatTheMessageHeld) {
  pb::Cluster cluster;
  cluster.set_nodes(3);
  ASSERT_TRUE(ParseText("name: 'a'", "c", cluster).ok());
  EXPECT_FALSE(cluster.has_nodes());
  EXPECT_FALSE(ParseText("name: 'b' bad", "c", cluster).ok());
  EXPECT_EQ(cluster.name(), "");
}

TEST(ParseJson, GrammarErrorsNameLineAndColumn) {
  pb::Cluster cluster;
  EXPECT_THAT(ParseJson("{\n  \"name\": ,\n}", "c.json", cluster).message(),
              StartsWith("c.json:2:11: "));
  EXPECT_THAT(ParseJson("", "c.json", cluster).message(), StartsWith("c.json:1:1: "));
  EXPECT_EQ(ParseJson("{} {}", "c.json", cluster).code(), StatusCode::kInvalidInput);
}

TEST(ParseJson, WrongFieldsAndTypesAreNamed) {
  pb::Cluster cluster;
  EXPECT_THAT(ParseJson(R"({"gpu": {"smss": 3}})", "c", cluster).message(), HasSubstr("smss"));
  EXPECT_THAT(ParseJson(R"({"gpu": {"sms": "many"}})", "c", cluster).message(),
              HasSubstr("gpu.sms"));
  EXPECT_FALSE(ParseJson(R"({"gpu": 3})", "c", cluster).ok());
  EXPECT_FALSE(ParseJson("[]", "c", cluster).ok());
  EXPECT_FALSE(ParseJson("3", "c", cluster).ok());
  EXPECT_FALSE(ParseJson(R"({"gpu": {"sms": 3000000000}})", "c", cluster).ok());
  EXPECT_FALSE(ParseJson(R"({"name": ")"
                         "\xff"
                         R"("})",
                         "c", cluster)
                   .ok());
}

TEST(ParseJson, TakesTheForeignSpellingsOfTheMapping) {
  pb::Cluster cluster;
  ASSERT_TRUE(
      ParseJson(R"({"gpu": {"memoryBytes": "85899345920", "sms": 108.0}})", "c", cluster).ok());
  EXPECT_EQ(cluster.gpu().memory_bytes(), 85'899'345'920);
  EXPECT_EQ(cluster.gpu().sms(), 108);
}

TEST(ToJson, PrintsNumbersDefaultsAndLowerCaseNames) {
  pb::ModelParameter parameter;
  parameter.set_name("w");
  parameter.add_shape(int64_t{1} << 62);
  EXPECT_EQ(*ToJson(parameter),
            "{\n"
            "  \"name\": \"w\",\n"
            "  \"shape\": [\n"
            "    4611686018427387904\n"
            "  ],\n"
            "  \"frozen\": false,\n"
            "  \"tie\": \"\"\n"
            "}\n");
}

TEST(ToJson, LeavesOutWhatIsUnsetAndOrdersByFieldNumber) {
  pb::Op op;
  op.set_phase(pb::BACKWARD);
  op.mutable_all_gather()->set_reason(pb::AllGather::PREFETCH_BACKWARD_IMPLICIT);
  const std::string json = *ToJson(op);
  EXPECT_THAT(json, HasSubstr("\"phase\": \"backward\""));
  EXPECT_THAT(json, HasSubstr("\"reason\": \"prefetch_backward_implicit\""));
  EXPECT_THAT(json, Not(HasSubstr("\"stream\"")));  // optional, unset
  EXPECT_THAT(json, Not(HasSubstr("compute")));     // another kind
  EXPECT_LT(json.find("\"waits\""), json.find("\"phase\""));
  EXPECT_LT(json.find("\"phase\""), json.find("\"all_gather\""));
}

TEST(ToJson, UnnamedEnumValuesAndOddDoublesSurvive) {
  pb::Kernel kernel;
  kernel.add_operands()->set_dtype(static_cast<pb::DType>(77));
  kernel.set_flops(std::nan(""));
  pb::Kernel read;
  ASSERT_TRUE(ParseJson(*ToJson(kernel), "k", read).ok());
  EXPECT_EQ(static_cast<int>(read.operands(0).dtype()), 77);
  EXPECT_TRUE(std::isnan(read.flops()));
}

TEST(ToJson, TextThatIsNotUtf8IsAnError) {
  pb::Cluster cluster;
  cluster.set_name("\xff");
  EXPECT_EQ(ToJson(cluster).status().code(), StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace foreshard
