// Minimal changes of the hand-written plans, each with the rule that must refuse it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "proto/io.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/local_plan.h"
#include "tests/proto/small_plan.h"

namespace foreshard {

inline pb::Plan SmallPlan() {
  pb::Plan plan;
  const Status parsed = ParseText(kSmallPlan, "small_plan.h", plan);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return plan;
}

inline pb::Plan LocalPlan() {
  pb::Plan plan;
  const Status parsed = ParseText(kLocalPlan, "local_plan.h", plan);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return plan;
}

// Op `op` of the segment "step".
inline pb::Op* Step(pb::Plan& plan, int op) { return plan.mutable_segments(0)->mutable_ops(op); }

struct Mutation {
  const char* name;  // of the test
  const char* rule;
  const char* message;  // a part of it
  std::function<void(pb::Plan&)> apply;
};

inline void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.name; }

inline std::string NameOf(const ::testing::TestParamInfo<Mutation>& mutation) {
  return mutation.param.name;
}

// The plan is refused, by the mutation's rule and with its words.
inline void ExpectRefused(pb::Plan plan, const Mutation& mutation) {
  mutation.apply(plan);
  const Status status = CheckPlan(plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kInvalidPlan);
  EXPECT_THAT(status.message(), ::testing::StartsWith(std::string("rule ") + mutation.rule + ": "));
  EXPECT_THAT(status.message(), ::testing::HasSubstr(mutation.message));
}
inline void ExpectRefused(const Mutation& mutation) { ExpectRefused(SmallPlan(), mutation); }

}  // namespace foreshard
