// A whole step of a model of two units on two ranks, and a cluster whose numbers make every time a
// whole count of picoseconds that can be worked out by hand: one byte and one FLOP take 1 ps each.
#pragma once

#include <string_view>

namespace foreshard::sim {

// Host: 10 ps a kernel, 20 a collective. Device: 5 ps a kernel before its work. Rings: 100 ps, 10
// a step, 1 ps a byte.
inline constexpr std::string_view kRoundCluster = R"pb(
  name: "round"
  gpu {
    name: "round-gpu"
    sms: 1
    memory_bytes: 10000
    reserve_bytes: 1000
    bf16_flops_per_second: 1e12
    fp32_flops_per_second: 5e11
    memory_bytes_per_second: 1e12
    efficiency { matmul: 1 attention: 1 memory: 1 }
  }
  node { gpus: 8 link_bytes_per_second: 1e12 link_step_seconds: 10e-12 }
  network { nics: 8 nic_bytes_per_second: 1e11 efficiency: 0.5 step_seconds: 40e-12 }
  host {
    launch_seconds: 10e-12
    collective_seconds: 20e-12
    kernel_seconds: 5e-12
    collective_base_seconds: 100e-12
  }
)pb";

// Unit 0 (root): shard of 40 elements on each rank; unit 1 (block): 100. Times and bytes of its ops
// are derived in tests/sim/simulate_test.cc. Not "pb": one op a line is easier to follow than one
// field a line.
inline constexpr std::string_view kTwoUnitPlan = R"plan(
  header {
    format_version: 4 tool_version: "test" model_name: "two" parameter_count: 280
    model_flops: 4300
  }
  decisions {
    torch: "2.15" original_dtype: FP32 param_dtype: BF16 reduce_dtype: FP32 wrap_policy: "blocks"
    optimizer: ADAMW optimizer_impl: FUSED loss: SUM_FP32 micro_batch: 2 seq: 3
  }
  mesh { world_size: 2 shard_size: 2 replicate_size: 1 }
  modules { path: "" class: "Model" }
  modules { path: "block" class: "Block" }
  units { name: "<root>" modules: 0 numel: 80 padded_shard_numel: 40 gathered_numel: 80 }
  units {
    name: "block" modules: 1 reshard_after_forward: true numel: 200 padded_shard_numel: 100
    gathered_numel: 200
  }
  streams { name: "compute" role: COMPUTE }
  streams { name: "copy_in" role: GATHER_COPY_IN }
  streams { name: "gather" role: GATHER }
  streams { name: "reduce" role: REDUCE }
  groups { name: "shard" size: 2 stride: 1 }
  kernels { name: "block" operands { dtype: BF16 } flops: 1000 matmul: true }
  kernels { name: "head" operands { dtype: BF16 } flops: 500 bytes: 700 matmul: true }
  kernels { name: "head_backward" operands { dtype: BF16 } flops: 800 matmul: true }
  kernels { name: "block_backward" operands { dtype: BF16 } flops: 2000 matmul: true }
  buffers { bytes: 160 category: SHARDED_PARAM unit: 0 }           # 0
  buffers { bytes: 400 category: SHARDED_PARAM unit: 1 }           # 1
  buffers { bytes: 64 category: INPUT }                            # 2
  buffers { bytes: 80 category: CAST stream: 1 unit: 0 }           # 3
  buffers { bytes: 160 category: AG_OUTPUT stream: 1 unit: 0 }     # 4
  buffers { bytes: 160 category: UNSHARDED_PARAM unit: 0 }         # 5
  buffers { bytes: 200 category: CAST stream: 1 unit: 1 }          # 6
  buffers { bytes: 400 category: AG_OUTPUT stream: 1 unit: 1 }     # 7
  buffers { bytes: 400 category: UNSHARDED_PARAM unit: 1 }         # 8
  buffers { bytes: 300 category: ACTIVATION module: 1 }            # 9
  buffers { bytes: 500 category: ACTIVATION logits: true module: 0 }  # 10
  buffers { bytes: 300 category: TEMP module: 1 }                  # 11
  buffers { bytes: 160 category: UNSHARDED_GRAD unit: 0 }          # 12
  buffers { bytes: 400 category: UNSHARDED_GRAD unit: 1 }          # 13
  buffers { bytes: 800 category: RS_INPUT stream: 3 unit: 1 }      # 14
  buffers { bytes: 400 category: SHARDED_GRAD stream: 3 unit: 1 }  # 15
  buffers { bytes: 320 category: RS_INPUT stream: 3 unit: 0 }      # 16
  buffers { bytes: 160 category: SHARDED_GRAD stream: 3 unit: 0 }  # 17
  buffers { bytes: 320 category: OPTIMIZER_STATE unit: 0 }         # 18
  buffers { bytes: 800 category: OPTIMIZER_STATE unit: 1 }         # 19
  resident: [ 0, 1, 2 ]
  segments {
    name: "step"
    ops { stream: 1 phase: FORWARD stream_wait { on: 0 } }  # 0
    ops {                                                   # 1
      stream: 1 allocs: 3 in: 0 out: 3 unit: 0 phase: FORWARD
      cast_shard { elems: 40 from: FP32 to: BF16 }
    }
    ops {  # 2
      stream: 1 allocs: 4 in: 3 out: 4 frees: 3 unit: 0 phase: FORWARD
      gather_copy_in { elems: 40 dtype: BF16 }
    }
    ops {  # 3
      stream: 2 waits: 2 in: 4 out: 4 unit: 0 phase: FORWARD
      all_gather { group: 0 elems_in: 40 elems_out: 80 dtype: BF16 reason: REASON_FORWARD }
    }
    ops {  # 4
      stream: 0 waits: 3 allocs: 5 in: 4 out: 5 frees: 4 unit: 0 phase: FORWARD
      copy_out { elems: 80 dtype: BF16 }
    }
    ops {  # 5
      stream: 1 allocs: 6 in: 1 out: 6 unit: 1 phase: FORWARD
      cast_shard { elems: 100 from: FP32 to: BF16 }
    }
    ops {  # 6
      stream: 1 allocs: 7 in: 6 out: 7 frees: 6 unit: 1 phase: FORWARD
      gather_copy_in { elems: 100 dtype: BF16 }
    }
    ops {  # 7
      stream: 2 waits: 6 in: 7 out: 7 unit: 1 phase: FORWARD
      all_gather { group: 0 elems_in: 100 elems_out: 200 dtype: BF16 reason: REASON_FORWARD }
    }
    ops {  # 8
      stream: 0 waits: 7 allocs: 8 in: 7 out: 8 frees: 7 unit: 1 phase: FORWARD
      copy_out { elems: 200 dtype: BF16 }
    }
    ops {  # 9
      stream: 0 allocs: 9 in: [ 2, 8 ] out: 9 unit: 1 module: 1 phase: FORWARD
      compute { kernel: 0 }
    }
    ops { frees: 8 unit: 1 phase: FORWARD reshard {} }  # 10
    ops {                                               # 11
      stream: 0 allocs: 10 in: [ 9, 5 ] out: 10 unit: 0 module: 0 phase: FORWARD
      compute { kernel: 1 }
    }
    ops {  # 12
      stream: 0 allocs: [ 11, 12 ] in: [ 10, 5 ] out: [ 11, 12 ] frees: 10 unit: 0 module: 0
      phase: BACKWARD compute { kernel: 2 }
    }
    ops {  # 13
      stream: 1 host_waits: 9 allocs: 6 in: 1 out: 6 unit: 1 phase: BACKWARD
      cast_shard { elems: 100 from: FP32 to: BF16 }
    }
    ops {  # 14
      stream: 1 allocs: 7 in: 6 out: 7 frees: 6 unit: 1 phase: BACKWARD
      gather_copy_in { elems: 100 dtype: BF16 }
    }
    ops {  # 15
      stream: 2 waits: 14 in: 7 out: 7 unit: 1 phase: BACKWARD
      all_gather { group: 0 elems_in: 100 elems_out: 200 dtype: BF16 reason: REASON_BACKWARD }
    }
    ops {  # 16
      stream: 0 waits: 15 allocs: 8 in: 7 out: 8 frees: 7 unit: 1 phase: BACKWARD
      copy_out { elems: 200 dtype: BF16 }
    }
    ops {  # 17
      stream: 0 allocs: 13 in: [ 11, 9, 8 ] out: 13 frees: [ 9, 11 ] unit: 1 module: 1
      phase: BACKWARD compute { kernel: 3 }
    }
    ops { frees: 8 unit: 1 phase: BACKWARD reshard {} }  # 18
    ops {                                                # 19
      stream: 3 waits: 17 allocs: 14 in: 13 out: 14 frees: 13 unit: 1 phase: BACKWARD
      reduce_copy_in { elems_in: 200 elems_out: 200 from: BF16 to: FP32 }
    }
    ops {  # 20
      stream: 3 allocs: 15 in: 14 out: 15 unit: 1 phase: BACKWARD
      reduce_scatter { group: 0 elems_in: 200 elems_out: 100 dtype: FP32 reduction: AVG }
    }
    ops { stream: 3 in: 15 unit: 1 phase: BACKWARD grad_finalize { from: FP32 to: FP32 } }  # 21
    ops {                                                                                   # 22
      stream: 3 waits: 12 allocs: 16 in: 12 out: 16 frees: 12 unit: 0 phase: BACKWARD
      reduce_copy_in { elems_in: 80 elems_out: 80 from: BF16 to: FP32 }
    }
    ops {  # 23
      stream: 3 allocs: 17 in: 16 out: 17 unit: 0 phase: BACKWARD
      reduce_scatter { group: 0 elems_in: 80 elems_out: 40 dtype: FP32 reduction: AVG }
    }
    ops { stream: 3 in: 17 unit: 0 phase: BACKWARD grad_finalize { from: FP32 to: FP32 } }  # 24
    ops { stream: 0 phase: BACKWARD stream_wait { on: 3 } }                                 # 25
    ops { frees: [ 14, 16 ] phase: BACKWARD release {} }                                    # 26
    ops { frees: 5 unit: 0 phase: BACKWARD reshard {} }                                     # 27
  }
  segments {
    name: "init"
    ops {
      stream: 0 allocs: [ 18, 19 ] out: [ 18, 19 ] phase: OPTIMIZER
      optimizer_init { kind: ADAMW }
    }
  }
  segments {
    name: "update"
    ops {
      stream: 0 in: [ 15, 17 ] out: [ 0, 1, 18, 19 ] phase: OPTIMIZER
      optimizer_step { kind: ADAMW impl: FUSED elems: 140 }
    }
    ops { frees: [ 15, 17 ] phase: ZERO_GRAD zero_grad {} }
  }
  programs {
    name: "first"
    uses { segment: 0 repeat: 1 }
    uses { segment: 1 repeat: 1 }
    uses { segment: 2 repeat: 1 }
  }
  programs { name: "steady" uses { segment: 0 repeat: 1 } uses { segment: 2 repeat: 1 } }
)plan";

}  // namespace foreshard::sim
