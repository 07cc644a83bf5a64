#include "proto/base/dtype.h"

#include <gtest/gtest.h>

namespace foreshard {
namespace {

static_assert(SizeOf(DType::kFp32) == 4);
static_assert(SizeOf(DType::kBf16) == 2);
static_assert(SizeOf(DType::kFp16) == 2);
static_assert(SizeOf(DType::kInt64) == 8);
static_assert(SizeOf(DType::kUint64) == 8);
static_assert(SizeOf(DType::kBool) == 1);

TEST(DType, NamesReadBack) {
  for (const DType t :
       {DType::kFp32, DType::kBf16, DType::kFp16, DType::kInt64, DType::kUint64, DType::kBool}) {
    const StatusOr<DType> read = ParseDType(Name(t));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, t);
  }
}

TEST(DType, ReadsPyTorchNames) {
  EXPECT_EQ(*ParseDType("float32"), DType::kFp32);
  EXPECT_EQ(*ParseDType("torch.bfloat16"), DType::kBf16);
  EXPECT_EQ(*ParseDType("torch.half"), DType::kFp16);
  EXPECT_EQ(*ParseDType("torch.long"), DType::kInt64);
}

TEST(DType, RefusesOthersAndNamesTheAllowed) {
  for (const char* text : {"", "fp8", "FP32", "torch.", "float64"}) {
    const StatusOr<DType> read = ParseDType(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("bf16"), std::string::npos);
  }
}

}  // namespace
}  // namespace foreshard
