// The report of a plan that repeats micro-batches, all-reduces and keeps tensors on the host.
#include <gtest/gtest.h>

#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/host_walk.h"
#include "proto/run/memory_recorder.h"
#include "proto/run/report_builder.h"
#include "tests/testing/parse.h"

namespace foreshard::run {
namespace {

// Three micro-batches: the first two repeat a segment. Each makes an activation of 40 bytes and
// leaves a part of the sum, 8 bytes, on the host, where 16 bytes of parameters live.
constexpr std::string_view kPlan = R"pb(
  header { model_flops: 10 }
  decisions { micro_batch: 2 seq: 5 }
  mesh { world_size: 6 shard_size: 2 replicate_size: 3 }
  streams { name: "compute" role: COMPUTE }
  streams { name: "reduce" role: REDUCE }
  groups { name: "shard" size: 2 stride: 1 }
  groups { name: "replicate" size: 3 stride: 2 }
  units { name: "<root>" }
  kernels { name: "relu" }
  buffers { bytes: 16 category: SHARDED_PARAM host: true unit: 0 }
  buffers { bytes: 40 category: ACTIVATION }
  buffers { bytes: 20 category: RECOMPUTE }
  buffers { bytes: 8 category: SHARDED_GRAD host: true unit: 0 }
  resident: 0
  segments {
    name: "one"
    ops {
      stream: 0
      allocs: 1
      phase: FORWARD
      compute { kernel: 0 }
    }
    ops {
      stream: 0
      allocs: 2
      frees: [ 1, 2 ]
      phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {
      stream: 1
      unit: 0
      phase: BACKWARD
      all_gather { group: 0 elems_in: 4 elems_out: 8 dtype: FP32 }
    }
  }
  segments {
    name: "last"
    ops {
      stream: 0
      allocs: 1
      phase: FORWARD
      micro_batch: 2
      compute { kernel: 0 }
    }
    ops {
      stream: 0
      allocs: 3
      frees: 1
      phase: BACKWARD
      micro_batch: 2
      compute { kernel: 0 }
    }
    ops {
      stream: 1
      unit: 0
      phase: BACKWARD
      micro_batch: 2
      all_reduce { group: 1 elems: 5 dtype: FP32 reduction: AVG }
    }
    ops {
      frees: 3
      phase: ZERO_GRAD
      micro_batch: 2
      zero_grad {}
    }
  }
  programs {
    name: "first"
    uses { segment: 0 repeat: 2 }
    uses { segment: 1 repeat: 1 }
  }
)pb";

pb::Report Reported() {
  const auto plan = ParseOrDie<pb::Plan>(kPlan);
  const Program program = Flatten(plan);
  MemoryRecorder memory(plan, program, 1);
  WalkHost(program, ProgramsOnce(program), memory);
  ReportBuilder builder(plan, program, Hardware{}, pb::Report::PREDICTED);
  builder.AddSetup();
  builder.AddMemory(memory);
  StepTime step;
  step.duration = SimTime(1'000'000'000'000);
  builder.AddTiming(step, ProgramId{0});
  return builder.Take();
}

TEST(Report, WhatIsOnTheHostIsNoMemoryOfTheDevice) {
  const pb::Report report = Reported();
  EXPECT_EQ(report.peak().bytes(), 40 + 20);
  EXPECT_EQ(report.fit().peak_bytes(), 60);
  for (const pb::LiveGroup& group : report.peak().live()) {
    EXPECT_NE(group.category(), pb::SHARDED_PARAM);
  }
  EXPECT_EQ(report.host().peak_bytes(), 16 + 8);
  ASSERT_EQ(report.host().peak_by_category_size(), 2);
  EXPECT_EQ(report.host().peak_by_category(0).category(), pb::SHARDED_PARAM);
  EXPECT_EQ(report.host().peak_by_category(0).bytes(), 16);
  EXPECT_EQ(report.host().peak_by_category(1).category(), pb::SHARDED_GRAD);
  EXPECT_EQ(report.host().peak_by_category(1).bytes(), 8);
}

TEST(Report, WhatIsRecomputedHasItsTermInThePeak) {
  const pb::Report report = Reported();
  ASSERT_EQ(report.peak().ledger_size(), 2);
  EXPECT_EQ(report.peak().ledger(0).name(), "activations");
  EXPECT_EQ(report.peak().ledger(1).name(), "recomputed activations");
  EXPECT_EQ(report.peak().ledger(1).bytes(), 20);
}

TEST(Report, EveryRepetitionIsAMicroBatchWithPhasesOfItsOwn) {
  const pb::Report report = Reported();
  // Forward and backward of three, and the end of the last.
  ASSERT_EQ(report.phases_size(), 7);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(report.phases(i).phase(), i % 2 == 0 ? pb::FORWARD : pb::BACKWARD);
    EXPECT_EQ(report.phases(i).micro_batch(), i / 2);
  }
  EXPECT_EQ(report.phases(1).peak_bytes(), 60);
  EXPECT_EQ(report.phases(5).peak_bytes(), 40);
}

TEST(Report, AStepIsAllItsMicroBatches) {
  const pb::Report report = Reported();
  EXPECT_EQ(report.setup().micro_batches(), 3);
  EXPECT_EQ(report.setup().replicate_size(), 3);
  EXPECT_EQ(report.timing().model_flops_per_step(), 3 * 10);
  EXPECT_DOUBLE_EQ(report.timing().tokens_per_second_per_gpu(), 3 * 2 * 5);  // in 1 s
}

TEST(Report, AnAllReduceSendsTwiceWhatAReduceScatterSends) {
  const pb::Report report = Reported();
  ASSERT_EQ(report.collectives_size(), 2);
  const pb::CollectiveTotal& gathers = report.collectives(0);
  EXPECT_EQ(gathers.kind(), "all_gather");
  EXPECT_EQ(gathers.count(), 2);
  EXPECT_EQ(gathers.wire_bytes(), 2 * 16);
  EXPECT_EQ(gathers.payload_bytes(), 2 * 32);
  EXPECT_EQ(gathers.group(), "shard");
  EXPECT_EQ(gathers.ranks(), 2);
  const pb::CollectiveTotal& reduces = report.collectives(1);
  EXPECT_EQ(reduces.kind(), "all_reduce");
  EXPECT_EQ(reduces.count(), 1);
  EXPECT_EQ(reduces.input_bytes(), 20);
  EXPECT_EQ(reduces.output_bytes(), 20);
  EXPECT_EQ(reduces.payload_bytes(), 2 * 20);
  EXPECT_EQ(reduces.group(), "replicate");
  EXPECT_EQ(reduces.ranks(), 3);
  // 2 * 2/3 * 20 = 26.7
  EXPECT_EQ(reduces.wire_bytes(), 26);
}

}  // namespace
}  // namespace foreshard::run
