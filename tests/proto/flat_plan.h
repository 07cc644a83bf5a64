// A plan of two units on two ranks, each with a flat parameter: gathered in one piece, its
// gradients joined, and given to the optimizer as one tensor. The root's six elements need no
// padding, the block's five do.
#pragma once

#include <string_view>

namespace foreshard {

// Not "pb": one op a line is easier to follow than one field a line.
inline constexpr std::string_view kFlatPlan = R"plan(
  header { format_version: 4 tool_version: "test" model_name: "flat" parameter_count: 11 }
  decisions {
    torch: "2.15" original_dtype: FP32 param_dtype: BF16 reduce_dtype: FP32 optimizer: ADAMW
    optimizer_impl: FUSED loss: SUM_FP32 micro_batch: 1 seq: 2 strategy: FULL_SHARD
  }
  mesh { world_size: 2 shard_size: 2 replicate_size: 1 }
  modules { path: "" class: "Model" }
  modules { path: "block" class: "Linear" }
  parameters { path: "block.weight" shape: [ 2, 2 ] unit: 1 sharded_buffer: 1 initial { normal: 1 } }
  parameters {
    path: "block.bias" shape: [ 1 ] unit: 1 sharded_buffer: 1 flat_offset: 4
    initial { constant: 0 }
  }
  parameters { path: "weight" shape: [ 2, 2 ] unit: 0 sharded_buffer: 0 initial { normal: 1 } }
  parameters {
    path: "bias" shape: [ 1 ] unit: 0 sharded_buffer: 0 flat_offset: 4 initial { constant: 0 }
  }
  units {
    name: "<root>" modules: 0 parameters: [ 2, 3 ] numel: 5 padded_shard_numel: 3
    grad_padded_shard_numel: 3 gathered_numel: 6 flat { numel: 6 sharded_buffer: 0 }
  }
  units {
    name: "block" modules: 1 parameters: [ 0, 1 ] reshard_after_forward: true numel: 5
    padded_shard_numel: 3 grad_padded_shard_numel: 3 gathered_numel: 6
    flat { numel: 5 sharded_buffer: 1 }
  }
  inputs { name: "t" buffer: 2 dtype: INT64 shape: [ 1, 2 ] rule: TOKENS limit: 3 }
  streams { name: "compute" role: COMPUTE }
  streams { name: "pre_unshard" role: GATHER_COPY_IN }
  streams { name: "unshard" role: GATHER }
  streams { name: "post_backward" role: REDUCE }
  groups { name: "shard" size: 2 stride: 1 }
  events { name: "free block" }
  kernels {
    name: "relu" operands { dtype: BF16 shape: [ 2, 2 ] } results { dtype: BF16 shape: [ 2, 2 ] }
  }
  kernels { name: "relu" operands { dtype: BF16 shape: [ 1 ] } results { dtype: BF16 shape: [ 1 ] } }
  buffers { bytes: 12 category: SHARDED_PARAM unit: 0 }                          # 0
  buffers { bytes: 12 category: SHARDED_PARAM unit: 1 }                          # 1
  buffers { bytes: 16 category: INPUT }                                          # 2
  buffers { bytes: 6 category: CAST stream: 1 unit: 0 recorded_on: 2 }           # 3
  buffers { bytes: 6 category: CAST stream: 1 unit: 1 recorded_on: 2 }           # 4
  buffers { bytes: 12 category: UNSHARDED_PARAM stream: 2 unit: 0 recorded_on: 0 }  # 5
  buffers { bytes: 12 category: UNSHARDED_PARAM stream: 2 unit: 1 recorded_on: 0 }  # 6
  buffers { bytes: 8 category: ACTIVATION module: 1 }                            # 7
  buffers { bytes: 8 category: ACTIVATION module: 0 }                            # 8
  buffers { bytes: 8 category: PARAM_GRAD unit: 0 }                              # 9
  buffers { bytes: 12 category: UNSHARDED_GRAD unit: 0 recorded_on: 3 }          # 10
  buffers { bytes: 24 category: RS_INPUT stream: 3 unit: 0 }                     # 11
  buffers { bytes: 12 category: SHARDED_GRAD stream: 3 unit: 0 }                 # 12
  buffers { bytes: 8 category: PARAM_GRAD unit: 1 }                              # 13
  buffers { bytes: 2 category: PARAM_GRAD unit: 1 }                              # 14
  buffers { bytes: 10 category: UNSHARDED_GRAD unit: 1 recorded_on: 3 }          # 15
  buffers { bytes: 20 category: RS_INPUT stream: 3 unit: 1 }                     # 16
  buffers { bytes: 24 category: RS_INPUT stream: 3 unit: 1 }                     # 17
  buffers { bytes: 12 category: SHARDED_GRAD stream: 3 unit: 1 }                 # 18
  buffers { bytes: 4 category: OPTIMIZER_STATE unit: 0 }                         # 19
  buffers { bytes: 12 category: OPTIMIZER_STATE unit: 0 }                        # 20
  buffers { bytes: 12 category: OPTIMIZER_STATE unit: 0 }                        # 21
  buffers { bytes: 4 category: OPTIMIZER_STATE unit: 1 }                         # 22
  buffers { bytes: 12 category: OPTIMIZER_STATE unit: 1 }                        # 23
  buffers { bytes: 12 category: OPTIMIZER_STATE unit: 1 }                        # 24
  resident: [ 0, 1, 2 ]
  segments {
    name: "step"
    ops { stream: 2 phase: FORWARD stream_wait { on: 0 } }  # 0
    ops { stream: 1 phase: FORWARD stream_wait { on: 0 } }  # 1
    ops {  # 2
      stream: 1 allocs: 4 in: 1 out: 4 unit: 1 phase: FORWARD
      cast_shard { elems: 3 from: FP32 to: BF16 }
    }
    ops {  # 3
      stream: 2 waits: 2 allocs: 6 in: 4 out: 6 frees: 4 unit: 1 phase: FORWARD
      all_gather { group: 0 elems_in: 3 elems_out: 6 dtype: BF16 reason: REASON_FORWARD }
    }
    ops {  # 4
      stream: 1 allocs: 3 in: 0 out: 3 unit: 0 phase: FORWARD
      cast_shard { elems: 3 from: FP32 to: BF16 }
    }
    ops {  # 5
      stream: 2 waits: 4 allocs: 5 in: 3 out: 5 frees: 3 unit: 0 phase: FORWARD
      all_gather { group: 0 elems_in: 3 elems_out: 6 dtype: BF16 reason: REASON_FORWARD }
    }
    ops {  # 6
      stream: 0 waits: 3 allocs: 7 in: 6 out: 7 unit: 1 module: 1 phase: FORWARD
      compute { kernel: 0 }
    }
    ops { frees: 6 unit: 1 phase: FORWARD record: 0 reshard {} }  # 7
    ops {  # 8
      stream: 0 waits: 5 allocs: 8 in: 5 out: 8 unit: 0 module: 0 phase: FORWARD
      compute { kernel: 0 }
    }
    ops {  # 9
      stream: 1 allocs: 4 in: 1 out: 4 unit: 1 phase: BACKWARD
      cast_shard { elems: 3 from: FP32 to: BF16 }
    }
    ops {  # 10
      stream: 2 waits: 9 allocs: 6 in: 4 out: 6 frees: 4 unit: 1 phase: BACKWARD
      all_gather { group: 0 elems_in: 3 elems_out: 6 dtype: BF16 reason: REASON_BACKWARD }
    }
    ops {  # 11
      stream: 0 allocs: 9 in: 8 out: 9 frees: 8 unit: 0 module: 0 phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {  # 12: nothing has used the bias
      stream: 0 allocs: 10 in: 9 out: 10 frees: 9 unit: 0 phase: BACKWARD
      concat_gradients { parameters: 2 elems: 6 dtype: BF16 }
    }
    ops {  # 13
      stream: 3 waits: 12 allocs: 11 in: 10 out: 11 unit: 0 phase: BACKWARD
      reduce_copy_in { elems_in: 6 elems_out: 6 from: BF16 to: FP32 }
    }
    ops {  # 14
      stream: 3 in: 11 out: 11 unit: 0 phase: BACKWARD divide { divisor: 2 elems: 6 dtype: FP32 }
    }
    ops {  # 15
      stream: 3 allocs: 12 in: 11 out: 12 frees: [ 10, 11 ] unit: 0 phase: BACKWARD
      reduce_scatter { group: 0 elems_in: 6 elems_out: 3 dtype: FP32 reduction: SUM }
    }
    ops {  # 16
      stream: 3 in: 12 out: 12 unit: 0 phase: BACKWARD grad_finalize { from: FP32 to: FP32 }
    }
    ops {  # 17
      stream: 0 waits: 10 allocs: 13 in: 7 out: 13 frees: 7 unit: 1 module: 1 phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {  # 18
      stream: 0 allocs: 14 in: 6 in_offsets: 4 out: 14 unit: 1 module: 1 phase: BACKWARD
      compute { kernel: 1 }
    }
    ops {  # 19
      stream: 0 allocs: 15 in: [ 13, 14 ] out: 15 frees: [ 13, 14 ] unit: 1 phase: BACKWARD
      concat_gradients { parameters: [ 0, 1 ] elems: 5 dtype: BF16 }
    }
    ops { frees: 6 unit: 1 phase: BACKWARD record: 0 reshard {} }  # 20
    ops {  # 21
      stream: 3 waits: 19 allocs: 16 in: 15 out: 16 unit: 1 phase: BACKWARD
      reduce_copy_in { elems_in: 5 elems_out: 5 from: BF16 to: FP32 }
    }
    ops {  # 22
      stream: 3 allocs: 17 in: 16 out: 17 unit: 1 phase: BACKWARD
      reduce_copy_in { elems_in: 5 elems_out: 6 from: FP32 to: FP32 }
    }
    ops {  # 23
      stream: 3 in: 17 out: 17 unit: 1 phase: BACKWARD divide { divisor: 2 elems: 6 dtype: FP32 }
    }
    ops {  # 24
      stream: 3 allocs: 18 in: 17 out: 18 frees: [ 15, 16, 17 ] unit: 1 phase: BACKWARD
      reduce_scatter { group: 0 elems_in: 6 elems_out: 3 dtype: FP32 reduction: SUM }
    }
    ops {  # 25
      stream: 3 in: 18 out: 18 unit: 1 phase: BACKWARD grad_finalize { from: FP32 to: FP32 }
    }
    ops { stream: 0 phase: BACKWARD stream_wait { on: 3 } }  # 26
    ops { frees: 5 unit: 0 phase: BACKWARD reshard {} }      # 27
  }
  segments {
    name: "init"
    ops {
      stream: 0 allocs: [ 19, 20, 21, 22, 23, 24 ] out: [ 19, 20, 21, 22, 23, 24 ] phase: OPTIMIZER
      optimizer_init { kind: ADAMW }
    }
  }
  segments {
    name: "update"
    ops {
      stream: 0 in: [ 12, 18 ] out: [ 0, 1, 19, 20, 21, 22, 23, 24 ] phase: OPTIMIZER
      optimizer_step { kind: ADAMW impl: FUSED elems: 6 }
    }
    ops { frees: [ 12, 18 ] phase: ZERO_GRAD zero_grad {} }
  }
  programs {
    name: "first"
    uses { segment: 0 repeat: 1 }
    uses { segment: 1 repeat: 1 }
    uses { segment: 2 repeat: 1 }
  }
  programs { name: "steady" uses { segment: 0 repeat: 1 } uses { segment: 2 repeat: 1 } }
)plan";

}  // namespace foreshard
