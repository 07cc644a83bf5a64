#include "planner/validate_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "planner/validate.h"
#include "proto/strategy.h"
#include "tests/planner/plan_helpers.h"

namespace foreshard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Change = std::function<void(PlanRequest&)>;

// What is wrong with the request, or "".
std::string Refusal(const std::string& strategy, const Change& change) {
  PlanRequest request = SmallRequest(8);
  request.strategy = strategy;
  EXPECT_TRUE(CheckRequest(request).ok()) << strategy;
  change(request);
  const Status status = CheckRequest(request);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

struct Option {
  const char* flag;
  Change choose;
};

// Expects that the strategies of `which` accept the options and that the others refuse them.
void ExpectOnlyOf(bool (*which)(pb::Strategy), const char* library,
                  const std::vector<Option>& options) {
  for (const std::string& strategy : StrategyNames()) {
    for (const Option& option : options) {
      const std::string found = Refusal(strategy, option.choose);
      if (which(*ParseStrategy(strategy))) {
        EXPECT_EQ(found, "") << strategy;
      } else {
        EXPECT_THAT(found, StartsWith(std::string(option.flag) + ": an option of " + library +
                                      ", which strategy " + strategy + " has not; "));
      }
    }
  }
}

TEST(LegalStrategy, OptionsOfFullyShardAreItsAlone) {
  ExpectOnlyOf(
      [](pb::Strategy s) { return s == pb::FULLY_SHARD; }, "fsdp2",
      {{"reshard-after-forward", [](auto& r) { r.reshard_after_forward = false; }},
       {"reshard-after-forward",
        [](auto& r) {
          r.wrap_calls = {{{"layers.0"}, true}, {{""}, std::nullopt}};
        }},
       {"root-reshard-after-forward", [](auto& r) { r.root_reshard_after_forward = true; }},
       {"forward-prefetch", [](auto& r) { r.forward_prefetch_ahead = 1; }},
       {"forward-prefetch",
        [](auto& r) {
          r.forward_prefetch = {{"", {"layers.0"}}};
        }},
       {"backward-prefetch", [](auto& r) { r.backward_prefetch_ahead = 1; }},
       {"backward-prefetch",
        [](auto& r) {
          r.backward_prefetch = {{"", {"layers.0"}}};
        }},
       {"no-unshard-in-backward", [](auto& r) { r.sharded_in_backward = {"layers.0"}; }},
       {"shard-dim",
        [](auto& r) {
          r.shard_placements = {{"*", 1, 2}};
        }},
       {"reduce-buffers", [](auto& r) { r.reduce_input_buffers = 2; }},
       {"divide-factor", [](auto& r) { r.gradient_divide_factor = 8.0; }},
       {"force-sum", [](auto& r) { r.force_sum_reduction = true; }},
       {"separate-reduce-group", [](auto& r) { r.separate_reduce_group = true; }},
       {"output-dtype", [](auto& r) { r.output_dtype = DType::kFp32; }},
       {"keep-after-backward", [](auto& r) { r.micro_batches.reshard_after_backward = false; }},
       {"all-reduce-last", [](auto& r) { r.micro_batches.all_reduce = false; }},
       {"wait-last", [](auto& r) { r.micro_batches.last_backward = false; }}});
}

TEST(LegalStrategy, OptionsOfFsdp1AreItsAlone) {
  ExpectOnlyOf(IsFsdp1, "FSDP1",
               {{"use-orig-params", [](auto& r) { r.fsdp1.use_orig_params = true; }},
                {"fsdp1-backward-prefetch", [](auto& r) { r.fsdp1.backward_prefetch = "post"; }},
                {"fsdp1-forward-prefetch", [](auto& r) { r.fsdp1.forward_prefetch = true; }},
                {"no-limit-all-gathers", [](auto& r) { r.fsdp1.limit_all_gathers = false; }}});
}

TEST(LegalStrategy, OptionsOfDdpAreItsAlone) {
  ExpectOnlyOf(
      IsReplicated, "DDP",
      {{"bucket-cap-mb", [](auto& r) { r.ddp.bucket_bytes = 1; }},
       {"first-bucket-mb", [](auto& r) { r.ddp.first_bucket_bytes = 1; }},
       {"gradient-as-bucket-view", [](auto& r) { r.ddp.gradient_as_bucket_view = true; }}});
}

TEST(LegalStrategy, TheOtherLibrarysCounterpartIsNamed) {
  EXPECT_THAT(Refusal("full_shard", [](auto& r) { r.reshard_after_forward = false; }),
              HasSubstr("shard_grad_op keeps them"));
  EXPECT_THAT(Refusal("full_shard", [](auto& r) { r.forward_prefetch_ahead = 1; }),
              HasSubstr("FSDP1 has --fsdp1-forward-prefetch"));
  EXPECT_THAT(Refusal("fsdp2", [](auto& r) { r.fsdp1.forward_prefetch = true; }),
              HasSubstr("fsdp2 has --forward-prefetch"));
  EXPECT_THAT(Refusal("fsdp2", [](auto& r) { r.ddp.gradient_as_bucket_view = true; }),
              HasSubstr("use --strategy ddp or zero1"));
}

TEST(LegalStrategy, ReplicasAreOfHybridsAndFsdp2) {
  const Change replicate = [](PlanRequest& r) { r.replicate_size = 2; };
  for (const char* with : {"fsdp2", "hybrid_shard", "hybrid_shard_zero2"}) {
    EXPECT_EQ(Refusal(with, replicate), "");
  }
  EXPECT_THAT(Refusal("full_shard", replicate), HasSubstr("use hybrid_shard"));
  EXPECT_THAT(Refusal("shard_grad_op", replicate), HasSubstr("use hybrid_shard_zero2"));
  for (const char* whole : {"no_shard", "ddp", "zero1"}) {
    EXPECT_THAT(Refusal(whole, replicate), HasSubstr("every rank is a replica; leave it out"));
  }
}

TEST(LegalStrategy, UnitsOfSeveralModulesAreOfFsdp2) {
  const std::vector<Change> lists = {[](PlanRequest& r) { r.wrap = "titan"; },
                                     [](PlanRequest& r) { r.wrap = "every:2"; },
                                     [](PlanRequest& r) {
                                       r.wrap_calls = {{{"layers.0", "layers.1"}, {}}, {{""}, {}}};
                                     }};
  for (const Change& list : lists) {
    EXPECT_EQ(Refusal("fsdp2", list), "");
    EXPECT_THAT(Refusal("shard_grad_op", list),
                HasSubstr("makes units of several modules, which only fsdp2 has"));
  }
  EXPECT_EQ(Refusal("full_shard", [](PlanRequest& r) { r.wrap = "size:1M|class:Linear"; }), "");
}

TEST(LegalStrategy, DdpWrapsNothing) {
  EXPECT_THAT(Refusal("ddp", [](PlanRequest& r) { r.wrap = "class:Block"; }),
              HasSubstr("wrap: strategy ddp takes the model as a whole; leave it out"));
  EXPECT_EQ(Refusal("zero1", [](PlanRequest& r) { r.wrap = "whole"; }), "");
}

TEST(LegalStrategy, NamesArePyTorchs) {
  EXPECT_THAT(StrategyNames(),
              testing::ElementsAre("fsdp2", "full_shard", "shard_grad_op", "no_shard",
                                   "hybrid_shard", "hybrid_shard_zero2", "ddp", "zero1"));
  EXPECT_EQ(ParseStrategy("zero2"), pb::SHARD_GRAD_OP);
  EXPECT_EQ(ParseStrategy("zero3"), pb::FULL_SHARD);
  EXPECT_EQ(ParseStrategy("zero"), std::nullopt);
  PlanRequest request = SmallRequest(8);
  request.strategy = "fsdp";
  EXPECT_THAT(CheckRequest(request).message(), HasSubstr("strategy: unknown \"fsdp\""));
}

}  // namespace
}  // namespace foreshard
