#include "planner/decisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Picks of a random request; each has its default among them.
class RandomRequest {
 public:
  explicit RandomRequest(uint32_t seed) : random_(seed) {}

  PlanRequest Make() {
    PlanRequest r = SmallRequest(4);
    Sizes(r);
    Sharding(r);
    Training(r);
    Checkpointing(r.checkpoint);
    return r;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  bool Coin() { return Below(2) == 1; }
  template <typename T>
  T OneOf(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(static_cast<int>(values.size())))];
  }

  void Sizes(PlanRequest& r) {
    r.replicate_size = OneOf<int>({1, 2});
    r.torch = OneOf<std::string>({"2.6", "2.8.1", "2.14", "2.15.0", "2.99"});
    r.attention = OneOf<std::string>({"auto", "flash", "math"});
    r.micro_batch = 1 + Below(2);
    r.micro_batches.count = 1 + Below(3);
    r.micro_batches.reduce = Coin();
    r.micro_batches.all_reduce = Coin();
    r.micro_batches.last_backward = Coin();
    if (Coin()) r.micro_batches.reshard_after_backward = Coin();
  }

  void Sharding(PlanRequest& r) {
    using Kept = std::optional<Reshard>;
    r.wrap = OneOf<std::string>({"block", "every:2", "titan", "class:Block"});
    if (Below(4) == 0) r.wrap_calls = {{{"layers.1"}, Reshard::Groups(2)}, {{""}, {}}};
    r.reshard_after_forward = OneOf<Kept>({{}, true, false, Reshard::Groups(2)});
    r.root_reshard_after_forward = OneOf<Kept>({{}, true, false});
    r.forward_prefetch_ahead = Below(3);
    r.backward_prefetch_ahead = Below(3);
    r.reduce_input_buffers = 1 + Below(2);
    if (Coin()) r.gradient_divide_factor = 0.5 + Below(3);
    r.force_sum_reduction = Coin();
    r.separate_reduce_group = Coin();
    if (Coin()) r.shard_placements = {{"*w1.weight", 1, 0}, {"*", 1, 2}};
  }

  void Training(PlanRequest& r) {
    using Type = std::optional<DType>;
    r.param_dtype = OneOf<Type>({{}, DType::kFp32, DType::kBf16});
    r.reduce_dtype = OneOf<Type>({{}, DType::kFp32, DType::kBf16});
    r.output_dtype = OneOf<Type>({{}, DType::kFp32});
    r.cast_forward_inputs = Coin();
    r.loss = OneOf<std::string>({"sum_fp32", "cross_entropy", "cross_entropy_fp32"});
    r.optimizer = OneOf<std::string>({"none", "adamw", "sgd"});
    r.optimizer_impl = OneOf<std::string>({"fused", "foreach"});
    if (r.optimizer == "sgd") r.momentum = 0.5 * Below(2);
    if (r.optimizer != "none" && Coin()) r.weight_decay = 0.25 * Below(3);
  }

  void Checkpointing(CheckpointRequest& c) {
    c.policy = OneOf<std::string>({"none", "block", "every:2", "pattern:layers.*.w1"});
    if (c.policy == "none") return;
    c.outside_unit = Coin();
    c.reentrant = Below(4) == 0;
    c.early_stop = Coin();
    if (c.reentrant || Coin()) return;
    c.save_ops = {"aten.mm.default"};
    c.save_every_second_matmul = Coin();
  }

  std::mt19937 random_;
};

TEST(Decisions, MakeThePlanThatTheyWereRecordedIn) {
  constexpr int kRequests = 400;
  const pb::Model model = TreeModel({.blocks = 3});
  int made = 0;
  for (uint32_t seed = 0; seed < kRequests; ++seed) {
    const StatusOr<pb::Plan> plan = MakePlan(model, RandomRequest(seed).Make());
    if (!plan.ok()) continue;
    ++made;
    const StatusOr<PlanRequest> request = RequestOf(plan->decisions());
    ASSERT_TRUE(request.ok()) << seed << ": " << request.status().message();
    const StatusOr<pb::Plan> again = MakePlan(model, *request);
    ASSERT_TRUE(again.ok()) << seed << ": " << again.status().message();
    ASSERT_EQ(again->decisions().DebugString(), plan->decisions().DebugString()) << seed;
    ASSERT_EQ(again->SerializeAsString(), plan->SerializeAsString()) << seed;
  }
  EXPECT_GT(made, kRequests / 2);
}

TEST(Decisions, AbsentFieldsMeanTheDefaults) {
  pb::Decisions decisions;
  decisions.set_optimizer(pb::ADAMW);
  decisions.set_world_size(2);
  decisions.set_seq(4);
  PlanRequest request;
  request.world_size = 2;
  request.seq = 4;
  const pb::Model model = TreeModel({.blocks = 2});
  EXPECT_EQ(MakePlan(model, RequestOf(decisions).value())->SerializeAsString(),
            MakePlan(model, request)->SerializeAsString());
}

TEST(Decisions, WithoutAnOptimizerThereIsNone) {
  EXPECT_EQ(RequestOf(pb::Decisions())->optimizer, "none");
}

TEST(Decisions, CallsCountWithoutAPolicy) {
  pb::Decisions decisions;
  decisions.add_wrap()->add_modules("layers.0");
  decisions.add_wrap()->add_modules("");
  const PlanRequest request = RequestOf(decisions).value();
  ASSERT_EQ(request.wrap_calls.size(), 2);
  EXPECT_THAT(request.wrap_calls[0].modules, ElementsAre("layers.0"));
  EXPECT_FALSE(request.wrap_calls[0].reshard_after_forward.has_value());
  decisions.set_wrap_policy("every:2");
  EXPECT_TRUE(RequestOf(decisions)->wrap_calls.empty());
  EXPECT_EQ(RequestOf(decisions)->wrap, "every:2");
}

std::string Refusal(const pb::Decisions& decisions) {
  const StatusOr<PlanRequest> request = RequestOf(decisions);
  EXPECT_FALSE(request.ok());
  return request.ok() ? "" : request.status().message();
}

TEST(Decisions, ImpossibleValuesAreRefused) {
  pb::Decisions decisions;
  decisions.set_reshard_after_forward("yes");
  EXPECT_THAT(Refusal(decisions), HasSubstr("found \"yes\", expected true, false or a number"));
  decisions.Clear();
  decisions.set_param_dtype(pb::INT64);
  EXPECT_THAT(Refusal(decisions), HasSubstr("param_dtype: found INT64, expected FP32, BF16"));
  decisions.Clear();
  decisions.add_wrap()->set_reshard_to(2);
  EXPECT_THAT(Refusal(decisions), HasSubstr("wrap: found reshard_to 2"));
  decisions.Clear();
  decisions.set_wrap_policy("explicit");
  EXPECT_THAT(Refusal(decisions), HasSubstr("explicit, but `wrap` lists no call"));
  decisions.Clear();
  decisions.set_optimizer(static_cast<pb::OptimizerKind>(77));
  EXPECT_THAT(Refusal(decisions), HasSubstr("optimizer: 77 is none"));
}

TEST(PrefetchAhead, ListsTheNextUnitsOfBothDirections) {
  PlanRequest request = SmallRequest(4);
  request.forward_prefetch_ahead = 2;
  request.backward_prefetch_ahead = 1;
  const pb::Decisions d = PlanOf(TreeModel({.blocks = 2}), request).decisions();
  // Forward: root, layers.0, layers.1. Backward: root, layers.1, layers.0.
  ASSERT_EQ(d.forward_prefetch_size(), 2);
  EXPECT_EQ(d.forward_prefetch(0).module(), "");
  EXPECT_THAT(d.forward_prefetch(0).targets(), ElementsAre("layers.0", "layers.1"));
  EXPECT_EQ(d.forward_prefetch(1).module(), "layers.0");
  EXPECT_THAT(d.forward_prefetch(1).targets(), ElementsAre("layers.1"));
  ASSERT_EQ(d.backward_prefetch_size(), 2);
  EXPECT_THAT(d.backward_prefetch(0).targets(), ElementsAre("layers.1"));
  EXPECT_EQ(d.backward_prefetch(1).module(), "layers.1");
  EXPECT_THAT(d.backward_prefetch(1).targets(), ElementsAre("layers.0"));
}

}  // namespace
}  // namespace foreshard
