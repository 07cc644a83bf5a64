#include "sim/cost/roofline.h"

#include <gtest/gtest.h>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "tests/testing/parse.h"

namespace foreshard::sim {
namespace {

// bf16 100 FLOP/s at 0.5 (attention 0.25), fp32 10 FLOP/s, memory 8 B/s at 0.5; a kernel costs
// 0.125 s, its launch 0.25 s, a collective 0.5 s on the host. Rings: 2 s base, no steps, 16 B/s.
// Copies to or from the host 4 B/s, its memory 2 B/s.
pb::Cluster RoundCluster() {
  return ParseOrDie<pb::Cluster>(R"pb(
    gpu {
      bf16_flops_per_second: 100
      fp32_flops_per_second: 10
      memory_bytes_per_second: 8
      efficiency { matmul: 0.5 attention: 0.25 memory: 0.5 }
    }
    node { gpus: 8 link_bytes_per_second: 16 }
    host {
      kernel_seconds: 0.125
      launch_seconds: 0.25
      collective_seconds: 0.5
      collective_base_seconds: 2
      copy_bytes_per_second: 4
      memory_bytes_per_second: 2
    }
  )pb");
}

struct Fixture {
  pb::Plan plan = ParseOrDie<pb::Plan>(R"pb(
    mesh { world_size: 4 }
    streams { name: "compute" role: COMPUTE }
    streams { name: "host" role: HOST }
    groups { size: 4 stride: 1 }
    groups { size: 1 stride: 1 }
    kernels {
      name: "linear"
      operands { dtype: BF16 }
      flops: 200
      bytes: 4
      matmul: true
    }
    parameters {}
    parameters {}
    parameters { frozen: true }
    buffers { bytes: 8 }
    buffers { bytes: 16 }
    buffers { bytes: 32 }
  )pb");
  pb::Cluster cluster = RoundCluster();
};

double KernelSeconds(std::string_view kernel) {
  const Fixture fixture;
  return RooflineModel(fixture.plan, fixture.cluster)
      .KernelTime(ParseOrDie<pb::Kernel>(kernel))
      .count();
}

OpCost Price(std::string_view op) {
  const Fixture fixture;
  return RooflineModel(fixture.plan, fixture.cluster).Price(ParseOrDie<pb::Op>(op));
}

TEST(Roofline, AKernelTakesItsArithmeticOrItsTrafficWhicheverIsLonger) {
  // 200 / (100 * 0.5) = 4 s against 4 / (8 * 0.5) = 1 s.
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(
                     name: "linear"
                     operands { dtype: BF16 }
                     flops: 200
                     bytes: 4
                     matmul: true
                   )pb"),
                   4 + 0.125);
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(
                     name: "linear"
                     operands { dtype: BF16 }
                     flops: 200
                     bytes: 40
                     matmul: true
                   )pb"),
                   10 + 0.125);
}

TEST(Roofline, Fp32ProductsRunAtTheFp32Peak) {
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(
                     name: "linear"
                     operands { dtype: FP32 }
                     flops: 20
                     matmul: true
                   )pb"),
                   20 / (10 * 0.5) + 0.125);
}

TEST(Roofline, TheFirstFloatingPointOperandDecidesTheType) {
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(
                     name: "linear"
                     operands { dtype: INT64 }
                     operands { dtype: FP16 }
                     flops: 50
                     matmul: true
                   )pb"),
                   1 + 0.125);
}

TEST(Roofline, AttentionHasItsOwnEfficiency) {
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(
                     name: "flash_attention"
                     operands { dtype: BF16 }
                     flops: 50
                     matmul: true
                   )pb"),
                   50 / (100 * 0.25) + 0.125);
}

TEST(Roofline, AKernelOutsideTheLibrarySaysWhetherItIsAProduct) {
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(
                     name: "stand-in"
                     operands { dtype: BF16 }
                     flops: 50
                     matmul: true
                   )pb"),
                   1 + 0.125);
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(name: "stand-in"
                                      operands { dtype: BF16 }
                                      flops: 50)pb"),
                   5 + 0.125);
}

TEST(Roofline, OtherKernelsComputeOnTheFp32Units) {
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(name: "add"
                                      operands { dtype: BF16 }
                                      flops: 30)pb"),
                   3 + 0.125);
}

TEST(Roofline, AnEmptyKernelStillTakesAKernel) {
  EXPECT_DOUBLE_EQ(KernelSeconds(R"pb(name: "add")pb"), 0.125);
}

TEST(Roofline, EveryKindOfOpHasItsPrice) {
  struct Case {
    std::string_view op;
    double host, device;
  };
  const Case cases[] = {
      {"stream: 0 compute { kernel: 0 }", 0.25, 4 + 0.125},
      // 2 elements of 4 + 2 bytes at 4 B/s
      {"stream: 0 cast_shard { elems: 2 from: FP32 to: BF16 }", 0.25, 3 + 0.125},
      {"stream: 0 gather_copy_in { elems: 4 dtype: BF16 }", 0.25, 4 + 0.125},
      {"stream: 0 copy_out { elems: 8 dtype: FP32 }", 0.25, 16 + 0.125},
      {"stream: 0 reduce_copy_in { elems_in: 4 elems_out: 3 from: BF16 to: FP32 } in: 0", 0.25,
       (8 + 12) / 4.0 + 0.125},
      {"stream: 0 grad_finalize { from: FP32 to: BF16 } in: 1 out: 0", 0.25, 6 + 0.125},
      {"stream: 0 grad_finalize { from: FP32 to: FP32 } in: 1 out: 1", 0, 0},
      // 2 s + 3/4 of the full buffer at 16 B/s
      {"stream: 0 all_gather { group: 0 elems_in: 8 elems_out: 32 dtype: BF16 }", 0.5, 2 + 3},
      {"stream: 0 reduce_scatter { group: 0 elems_in: 16 elems_out: 4 dtype: FP32 }", 0.5, 2 + 3},
      {"stream: 0 all_gather { group: 1 elems_in: 8 elems_out: 8 dtype: BF16 }", 0.5, 0},
      {"stream: 0 stream_wait { on: 1 }", 0.25, 0},
      {"stream: 0 optimizer_init {} out: [ 1, 2 ]", 0.25, 12 + 0.125},
      // gradient 8 read, shard 16 and state 32 read and written
      {"stream: 0 optimizer_step { impl: FUSED } in: 0 out: [ 1, 2 ]", 0.25, 26 + 0.125},
      // 20 passes instead of 7 (104 bytes -> 297), eight kernels
      {"stream: 0 optimizer_step { impl: FOREACH weight_decay: 0.1 } in: 0 out: [ 1, 2 ]", 0.25,
       297 / 4.0 + 8 * 0.125},
      // without decay 18 passes and seven kernels (104 bytes -> 267)
      {"stream: 0 optimizer_step { impl: FOREACH } in: 0 out: [ 1, 2 ]", 0.25,
       267 / 4.0 + 7 * 0.125},
      // gradient 8 read, shard 16 read and written
      {"stream: 0 optimizer_step { kind: SGD impl: FUSED } in: 0 out: 1", 0.25, 10 + 0.125},
      {"stream: 0 optimizer_step { kind: SGD impl: FOREACH } in: 0 out: 1", 0.25, 10 + 0.125},
      // 3 + 3 passes instead of 3, two kernels
      {"stream: 0 optimizer_step { kind: SGD impl: FOREACH weight_decay: 1 } in: 0 out: 1", 0.25,
       20 + 2 * 0.125},
      // 8 passes instead of 5 (104 bytes -> 166), three kernels
      {"stream: 0 optimizer_step { kind: SGD impl: FOREACH momentum: 1 } in: 0 out: [ 1, 2 ]", 0.25,
       166 / 4.0 + 3 * 0.125},
      {"stream: 0 local_gather { elems: 4 dtype: BF16 }", 0.25, 4 + 0.125},
      {"stream: 0 local_reduce { elems: 2 dtype: FP32 }", 0.25, 4 + 0.125},
      {"reshard {}", 0, 0},
      {"release {}", 0, 0},
      {"zero_grad {}", 0, 0},
  };
  for (const Case& c : cases) {
    const OpCost cost = Price(c.op);
    EXPECT_DOUBLE_EQ(cost.host.count(), c.host) << c.op;
    EXPECT_DOUBLE_EQ(cost.device.count(), c.device) << c.op;
  }
}

TEST(Roofline, AnAllReduceGoesTwiceAroundTheRing) {
  // 2 + 2 * 3/4 * 64 / 16
  const OpCost cost = Price("stream: 0 all_reduce { group: 0 elems: 16 dtype: FP32 }");
  EXPECT_DOUBLE_EQ(cost.device.count(), 8);
  EXPECT_DOUBLE_EQ(cost.host.count(), 0.5);
}

TEST(Roofline, CopiesBetweenDeviceAndHostRunAtTheLinksRate) {
  // 6 / 4, and only the parameter's part of a larger buffer.
  for (const char* op : {"stream: 0 in: 0 out: 0 copy_to_device { elems: 3 dtype: BF16 }",
                         "stream: 0 in: 2 out: 0 copy_to_host { elems: 3 dtype: BF16 }"}) {
    EXPECT_DOUBLE_EQ(Price(op).device.count(), 1.5 + 0.125) << op;
    EXPECT_DOUBLE_EQ(Price(op).host.count(), 0.25) << op;
  }
}

TEST(Roofline, WhatReordersOrAddsMovesItsBuffersThroughMemory) {
  // (32 + 32) / 4
  EXPECT_DOUBLE_EQ(Price("stream: 0 in: 2 out: 2 divide { divisor: 2 }").device.count(), 16.125);
  EXPECT_DOUBLE_EQ(Price("stream: 0 in: 2 out: 2 join_shards {}").device.count(), 16.125);
  // (16 + 16 + 16) / 4: both are read, one is written.
  EXPECT_DOUBLE_EQ(Price("stream: 0 in: [ 1, 1 ] out: 1 add_reduced {}").device.count(), 12.125);
  EXPECT_DOUBLE_EQ(
      Price("stream: 0 in: [ 1, 1 ] out: 1 grad_finalize { from: FP32 to: FP32 accumulate: true }")
          .device.count(),
      12.125);
}

TEST(Roofline, TheHostWorksAsFastAsItsMemory) {
  // 8 bytes of gradients read, 16 of shards read and written: 40 / 2.
  const OpCost cost =
      Price("stream: 1 in: 0 out: 1 optimizer_step { kind: ADAMW impl: FUSED learning_rate: 1 }");
  EXPECT_DOUBLE_EQ(cost.device.count(), 20);
  // Operation by operation 18 passes over the parameters instead of 7.
  EXPECT_NEAR(
      Price("stream: 1 in: 0 out: 1 optimizer_step { kind: ADAMW impl: FOREACH }").device.count(),
      20 * 18.0 / 7, 0.5);  // whole bytes
  EXPECT_DOUBLE_EQ(
      Price("stream: 1 in: [ 1, 1 ] out: 1 grad_finalize { from: FP32 to: FP32 accumulate: true }")
          .device.count(),
      24);
  EXPECT_EQ(Price("stream: 1 stream_wait { on: 0 }").device, Seconds(0));
}

// Two trainable parameters: everything that foreach does once is done twice, and the host issues
// each kernel.
TEST(Roofline, ALoopLaunchesKernelsForEveryParameter) {
  struct Case {
    std::string_view op;
    double kernels, bytes;
  };
  const Case cases[] = {
      // 18 passes instead of 7 (104 bytes -> 267), seven kernels
      {"stream: 0 optimizer_step { impl: LOOP } in: 0 out: [ 1, 2 ]", 2 * 7, 267},
      {"stream: 0 optimizer_step { kind: SGD impl: LOOP } in: 0 out: 1", 2 * 1, 40},
      // compiled
      {"stream: 0 optimizer_step { kind: ADAMW_8BIT impl: LOOP } in: 0 out: [ 1, 2 ]", 2, 104},
      {"stream: 0 clip_norms { loop: true } in: 1 out: 0", 2, 24},
      {"stream: 0 clip_scale { loop: true max_norm: 1 } in: 1 out: 1", 2, 32},
      {"stream: 0 clip_norms {} in: 1 out: 0", 1, 24},
  };
  for (const Case& c : cases) {
    const OpCost cost = Price(c.op);
    EXPECT_DOUBLE_EQ(cost.host.count(), 0.25 * c.kernels) << c.op;
    EXPECT_DOUBLE_EQ(cost.device.count(), c.bytes / 4 + 0.125 * c.kernels) << c.op;
  }
}

}  // namespace
}  // namespace foreshard::sim
