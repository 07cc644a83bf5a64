#include "proto/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace foreshard {
namespace {

StatusOr<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("odd");
  return n / 2;
}

Status CheckEven(int n) {
  RETURN_IF_ERROR(Half(n).status());
  return OkStatus();
}

StatusOr<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  ASSIGN_OR_RETURN(int quarter, Half(half));
  return quarter;
}

TEST(Status, IsOkUnlessAnErrorIsGiven) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(OkStatus().ok());
  const Status error = NotFound("no such file");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.code(), StatusCode::kNotFound);
  EXPECT_EQ(error.message(), "no such file");
}

TEST(Status, AtPutsThePlaceBeforeTheMessageOfAnError) {
  const Status error = InvalidInput("found 3").At("a.json");
  EXPECT_EQ(error.code(), StatusCode::kInvalidInput);
  EXPECT_EQ(error.message(), "a.json: found 3");
  EXPECT_TRUE(OkStatus().At("a.json").ok());
}

TEST(StatusOr, HoldsAValueOrAnError) {
  const StatusOr<int> value = Half(4);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 2);
  const StatusOr<int> error = Half(3);
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.status().message(), "odd");
}

TEST(StatusOr, GivesAwayWhatCannotBeCopied) {
  StatusOr<std::unique_ptr<int>> owner(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(owner).value();
  EXPECT_EQ(*taken, 7);
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_TRUE(CheckEven(2).ok());
  EXPECT_EQ(CheckEven(1).message(), "odd");
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(StatusOrDeathTest, ValueOfAnErrorIsABug) {
  EXPECT_DEATH(static_cast<void>(Half(3).value()), "odd");
  EXPECT_DEATH(static_cast<void>(StatusOr<int>(OkStatus())), "without a value");
}

}  // namespace
}  // namespace foreshard
