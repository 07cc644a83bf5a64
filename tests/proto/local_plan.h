// A plan of one unit of two parameters on one rank: nothing is gathered or reduced, all is copied.
// It has what an executor must know: values of a model buffer, a workspace, a loss, random numbers.
#pragma once

#include <string_view>

namespace foreshard {

inline constexpr std::string_view kLocalPlan = R"pb(
  header { format_version: 4 tool_version: "test" model_name: "one" parameter_count: 8 }
  decisions { torch: "2.15" original_dtype: FP32 param_dtype: BF16 reduce_dtype: FP32 }
  mesh { world_size: 1 shard_size: 1 replicate_size: 1 }
  modules { path: "" class: "Model" }
  parameters {
    path: "a"
    shape: [ 2, 3 ]
    unit: 0
    sharded_buffer: 0
    padded_shard_numel: 6
    initial { normal: 0.02 }
  }
  parameters {
    path: "b"
    shape: 2
    frozen: true
    unit: 0
    sharded_buffer: 1
    shard_offset: 6
    padded_shard_numel: 2
    initial { normal: 0.02 }
  }
  units {
    name: "<root>"
    modules: 0
    parameters: [ 0, 1 ]
    numel: 8
    padded_shard_numel: 8
    grad_padded_shard_numel: 6
    gathered_numel: 8
  }
  module_buffers {
    path: "inv_freq"
    buffer: 9
    dtype: FP32
    shape: 2
    rotary { theta: 10000 }
  }
  workspaces { library: "cublas" arch: "sm80" buffer: 10 }
  losses: 12
  streams { name: "compute" role: COMPUTE }
  streams { name: "reduce" role: REDUCE }
  kernels {
    name: "relu"
    operands {
      dtype: BF16
      shape: [ 2, 3 ]
    }
    results {
      dtype: BF16
      shape: [ 2, 3 ]
    }
  }
  kernels {
    name: "cos"
    operands { dtype: FP32 shape: 2 }
    results { dtype: FP32 shape: 2 }
  }
  kernels {
    name: "sum_all"
    operands {
      dtype: BF16
      shape: [ 2, 3 ]
    }
    results { dtype: FP32 }
  }
  kernels {
    name: "dropout_mask"
    results { dtype: BF16 shape: 2 }
    scalar: 0.5
  }
  buffers { bytes: 24 category: SHARDED_PARAM unit: 0 }
  buffers { bytes: 8 category: SHARDED_PARAM unit: 0 }
  buffers { bytes: 12 category: CAST unit: 0 }                    # 2
  buffers { bytes: 12 category: UNSHARDED_PARAM unit: 0 }         # 3
  buffers { bytes: 4 category: CAST unit: 0 }                     # 4
  buffers { bytes: 4 category: UNSHARDED_PARAM unit: 0 }          # 5
  buffers { bytes: 12 category: UNSHARDED_GRAD unit: 0 }          # 6
  buffers { bytes: 24 category: RS_INPUT unit: 0 }                # 7
  buffers { bytes: 24 category: SHARDED_GRAD stream: 1 unit: 0 }  # 8
  buffers { bytes: 8 category: MODULE_BUFFER }                    # 9
  buffers { bytes: 8519680 category: WORKSPACE }                  # 10
  buffers { bytes: 8 category: TEMP }                             # 11
  buffers { bytes: 4 category: ACTIVATION }                       # 12
  buffers { bytes: 4 category: TEMP }                             # 13
  resident: [ 0, 1, 9, 10 ]
  segments {
    name: "step"
    ops {
      # 0
      stream: 0
      allocs: 2
      in: 0
      out: 2
      unit: 0
      phase: FORWARD
      cast_shard { elems: 6 from: FP32 to: BF16 }
    }
    ops {
      # 1
      stream: 0
      allocs: 3
      in: 2
      out: 3
      unit: 0
      phase: FORWARD
      local_gather { elems: 6 dtype: BF16 }
    }
    ops {
      # 2
      stream: 0
      allocs: 4
      in: 1
      out: 4
      frees: 2
      unit: 0
      phase: FORWARD
      cast_shard { elems: 2 from: FP32 to: BF16 }
    }
    ops {
      # 3
      stream: 0
      allocs: 5
      in: 4
      out: 5
      frees: 4
      unit: 0
      phase: FORWARD
      local_gather { elems: 2 dtype: BF16 }
    }
    ops {
      # 4
      stream: 0
      allocs: 11
      in: 9
      out: 11
      frees: 11
      module: 0
      phase: FORWARD
      compute { kernel: 1 }
    }
    ops {
      # 5
      stream: 0
      allocs: 12
      in: 3
      out: 12
      module: 0
      phase: FORWARD
      compute { kernel: 2 }
    }
    ops {
      # 6
      stream: 0
      allocs: 13
      out: 13
      frees: 13
      module: 0
      phase: FORWARD
      random: 7
      compute { kernel: 3 }
    }
    ops {
      # 7
      stream: 0
      allocs: 6
      in: 3
      out: 6
      module: 0
      phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {
      frees: [ 3, 5, 12 ]
      unit: 0
      phase: BACKWARD
      reshard {}
    }  # 8
    ops {
      # 9
      stream: 0
      allocs: 7
      in: 6
      out: 7
      frees: 6
      unit: 0
      phase: BACKWARD
      reduce_copy_in { elems_in: 6 elems_out: 6 from: BF16 to: FP32 }
    }
    ops {
      # 10
      stream: 1
      waits: 9
      allocs: 8
      in: 7
      out: 8
      unit: 0
      phase: BACKWARD
      local_reduce { elems: 6 dtype: FP32 }
    }
    ops {
      # 11
      stream: 1
      in: 8
      unit: 0
      phase: BACKWARD
      grad_finalize { from: FP32 to: FP32 }
    }
    ops {
      stream: 0
      phase: BACKWARD
      stream_wait { on: 1 }
    }  # 12
    ops {
      frees: [ 7, 8 ]
      phase: ZERO_GRAD
      zero_grad {}
    }  # 13
  }
  programs {
    name: "first"
    uses { segment: 0 repeat: 1 }
  }
  programs {
    name: "steady"
    uses { segment: 0 repeat: 1 }
  }
)pb";

}  // namespace foreshard
