// A plan of two units on two ranks, small enough to read: each unit is gathered, used in forward
// and backward, reduced and updated.
#pragma once

#include <string_view>

namespace foreshard {

inline constexpr std::string_view kSmallPlan = R"pb(
  header { format_version: 4 tool_version: "test" model_name: "two" parameter_count: 12 }
  decisions {
    torch: "2.15"
    original_dtype: FP32
    param_dtype: BF16
    reduce_dtype: FP32
    optimizer: ADAMW
    optimizer_impl: FUSED
    loss: SUM_FP32
    micro_batch: 1
    seq: 2
  }
  mesh { world_size: 2 shard_size: 2 replicate_size: 1 }
  modules { path: "" class: "Model" }
  modules { path: "block" class: "Linear" }
  parameters {
    path: "block.weight"
    shape: [ 3, 2 ]
    unit: 1
    sharded_buffer: 0
    padded_shard_numel: 4
    initial { normal: 0.02 }
  }
  parameters {
    path: "weight"
    shape: [ 2, 2 ]
    unit: 0
    sharded_buffer: 1
    padded_shard_numel: 2
    initial { normal: 0.02 }
  }
  parameters {
    path: "bias"
    shape: [ 2 ]
    frozen: true
    unit: 0
    sharded_buffer: 2
    shard_offset: 2
    padded_shard_numel: 1
    initial { normal: 0.02 }
  }
  units {
    name: "<root>"
    modules: 0
    parameters: [ 1, 2 ]
    numel: 6
    padded_shard_numel: 3
    grad_padded_shard_numel: 2
    gathered_numel: 6
  }
  units {
    name: "block"
    modules: 1
    parameters: 0
    reshard_after_forward: true
    numel: 6
    padded_shard_numel: 4
    grad_padded_shard_numel: 4
    gathered_numel: 8
  }
  inputs {
    name: "t"
    buffer: 3
    dtype: INT64
    shape: [ 1, 2 ]
    rule: TOKENS
    limit: 3
  }
  streams { name: "compute" role: COMPUTE }
  streams { name: "copy_in" role: GATHER_COPY_IN }
  streams { name: "gather" role: GATHER }
  streams { name: "reduce" role: REDUCE }
  groups { name: "shard" size: 2 stride: 1 }
  kernels {
    name: "relu"
    operands {
      dtype: BF16
      shape: [ 2, 2 ]
      strides: [ 1, 2 ]
    }
    results {
      dtype: BF16
      shape: [ 2, 2 ]
    }
  }
  kernels {
    name: "relu"
    operands {
      dtype: BF16
      shape: [ 3, 2 ]
    }
    results {
      dtype: BF16
      shape: [ 3, 2 ]
    }
  }
  buffers {
    bytes: 16
    category: SHARDED_PARAM
    unit: 1
    others { rank: 1 bytes: 8 }
  }
  buffers { bytes: 8 category: SHARDED_PARAM unit: 0 }
  buffers { bytes: 4 category: SHARDED_PARAM unit: 0 }
  buffers { bytes: 16 category: INPUT }
  buffers { bytes: 8 category: CAST stream: 1 unit: 1 }           # 4
  buffers { bytes: 16 category: AG_OUTPUT stream: 1 unit: 1 }     # 5
  buffers { bytes: 16 category: UNSHARDED_PARAM unit: 1 }         # 6
  buffers { bytes: 8 category: ACTIVATION module: 1 }             # 7
  buffers { bytes: 12 category: UNSHARDED_GRAD unit: 1 }          # 8
  buffers { bytes: 32 category: RS_INPUT stream: 3 unit: 1 }      # 9
  buffers { bytes: 16 category: SHARDED_GRAD stream: 3 unit: 1 }  # 10
  buffers { bytes: 24 category: AG_OUTPUT stream: 1 unit: 0 }     # 11
  buffers { bytes: 8 category: UNSHARDED_GRAD unit: 0 }           # 12
  buffers { bytes: 16 category: RS_INPUT stream: 3 unit: 0 }      # 13
  buffers { bytes: 8 category: SHARDED_GRAD stream: 3 unit: 0 }   # 14
  buffers { bytes: 4 category: OPTIMIZER_STATE unit: 1 }          # 15
  buffers { bytes: 16 category: OPTIMIZER_STATE unit: 1 }         # 16
  buffers { bytes: 16 category: OPTIMIZER_STATE unit: 1 }         # 17
  buffers { bytes: 4 category: OPTIMIZER_STATE unit: 0 }          # 18
  buffers { bytes: 8 category: OPTIMIZER_STATE unit: 0 }          # 19
  buffers { bytes: 8 category: OPTIMIZER_STATE unit: 0 }          # 20
  resident: [ 0, 1, 2, 3 ]
  segments {
    name: "step"
    ops {
      # 0
      stream: 1
      allocs: 4
      in: 0
      out: 4
      unit: 1
      phase: FORWARD
      cast_shard { elems: 4 from: FP32 to: BF16 }
    }
    ops {
      # 1
      stream: 1
      allocs: 5
      in: 4
      out: 5
      frees: 4
      unit: 1
      phase: FORWARD
      gather_copy_in { elems: 4 dtype: BF16 }
    }
    ops {
      # 2
      stream: 2
      waits: 1
      in: 5
      out: 5
      unit: 1
      phase: FORWARD
      all_gather { group: 0 elems_in: 4 elems_out: 8 dtype: BF16 reason: REASON_FORWARD }
    }
    ops {
      # 3
      stream: 0
      waits: 2
      host_waits: 1
      allocs: 6
      in: 5
      out: 6
      frees: 5
      unit: 1
      phase: FORWARD
      copy_out { elems: 8 dtype: BF16 }
    }
    ops {
      # 4
      stream: 0
      allocs: 7
      in: 6
      in_offsets: 4
      out: 7
      unit: 1
      module: 1
      phase: FORWARD
      compute { kernel: 0 }
    }
    ops {
      # 5
      stream: 1
      waits: 3
      allocs: 11
      in: [ 1, 2 ]
      out: 11
      unit: 0
      phase: FORWARD
      gather_copy_in { elems: 3 dtype: FP32 }
    }
    ops {
      # 6
      stream: 2
      waits: 5
      in: 11
      out: 11
      unit: 0
      phase: FORWARD
      all_gather { group: 0 elems_in: 3 elems_out: 6 dtype: FP32 reason: REASON_FORWARD }
    }
    ops {
      # 7
      stream: 0
      waits: 6
      allocs: 8
      in: 6
      out: 8
      unit: 1
      module: 1
      phase: BACKWARD
      compute { kernel: 1 }
    }
    ops {
      frees: 6
      unit: 1
      phase: BACKWARD
      reshard {}
    }  # 8
    ops {
      # 9
      stream: 0
      allocs: 12
      in: 7
      out: 12
      frees: [ 7, 11 ]
      unit: 0
      module: 0
      phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {
      # 10
      stream: 3
      waits: 7
      allocs: 9
      in: 8
      out: 9
      frees: 8
      unit: 1
      phase: BACKWARD
      reduce_copy_in { elems_in: 6 elems_out: 8 from: BF16 to: FP32 }
    }
    ops {
      # 11
      stream: 3
      allocs: 10
      in: 9
      out: 10
      unit: 1
      phase: BACKWARD
      reduce_scatter { group: 0 elems_in: 8 elems_out: 4 dtype: FP32 reduction: AVG }
    }
    ops {
      stream: 3
      in: 10
      unit: 1
      phase: BACKWARD
      grad_finalize { from: FP32 to: FP32 }
    }  # 12
    ops {
      # 13
      stream: 3
      waits: 9
      allocs: 13
      in: 12
      out: 13
      frees: 12
      unit: 0
      phase: BACKWARD
      reduce_copy_in { elems_in: 4 elems_out: 4 from: BF16 to: FP32 }
    }
    ops {
      # 14
      stream: 3
      allocs: 14
      in: 13
      out: 14
      unit: 0
      phase: BACKWARD
      reduce_scatter { group: 0 elems_in: 4 elems_out: 2 dtype: FP32 reduction: AVG }
    }
    ops {
      stream: 0
      phase: BACKWARD
      stream_wait { on: 3 }
    }  # 15
    ops {
      frees: [ 9, 13 ]
      phase: BACKWARD
      release {}
    }  # 16
  }
  segments {
    name: "init"
    ops {
      stream: 0
      allocs: [ 15, 16, 17, 18, 19, 20 ]
      out: [ 15, 16, 17, 18, 19, 20 ]
      phase: OPTIMIZER
      optimizer_init { kind: ADAMW }
    }
  }
  segments {
    name: "update"
    ops {
      stream: 0
      in: [ 10, 14 ]
      out: [ 0, 1, 15, 16, 17, 18, 19, 20 ]
      phase: OPTIMIZER
      optimizer_step { kind: ADAMW impl: FUSED elems: 6 }
    }
    ops {
      frees: [ 10, 14 ]
      phase: ZERO_GRAD
      zero_grad {}
    }
    ops {
      stream: 1
      phase: ZERO_GRAD
      stream_wait { on: 0 }
    }  # the next step's gathers
  }
  programs {
    name: "first"
    uses { segment: 0 repeat: 1 }
    uses { segment: 1 repeat: 1 }
    uses { segment: 2 repeat: 1 }
  }
  programs {
    name: "steady"
    uses { segment: 0 repeat: 1 }
    uses { segment: 2 repeat: 1 }
  }
)pb";

}  // namespace foreshard
