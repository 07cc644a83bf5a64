// A plan of two parameters that both of two ranks have: their gradients are reduced in one bucket,
// and each rank updates one of them for the other.
#pragma once

#include <string_view>

namespace foreshard {

inline constexpr std::string_view kBucketPlan = R"pb(
  header { format_version: 4 tool_version: "test" model_name: "two" parameter_count: 12 }
  decisions { torch: "2.15" original_dtype: FP32 param_dtype: FP32 reduce_dtype: FP32 }
  mesh { world_size: 2 shard_size: 1 replicate_size: 2 }
  modules { path: "" class: "Model" }
  parameters {
    path: "a"
    shape: [ 2, 3 ]
    sharded_buffer: 0
    padded_shard_numel: 6
    initial { normal: 0.02 }
  }
  parameters {
    path: "b"
    shape: [ 2, 3 ]
    sharded_buffer: 1
    shard_offset: 6
    padded_shard_numel: 6
    initial { normal: 0.02 }
  }
  units {
    name: "<root>"
    modules: 0
    parameters: [ 0, 1 ]
    numel: 12
    padded_shard_numel: 12
    grad_padded_shard_numel: 12
    gathered_numel: 12
  }
  streams { name: "compute" role: COMPUTE }
  streams { name: "all_reduce" role: ALL_REDUCE }
  groups { name: "replicate" size: 2 stride: 1 }
  kernels {
    name: "relu"
    operands {
      dtype: FP32
      shape: [ 2, 3 ]
    }
    results {
      dtype: FP32
      shape: [ 2, 3 ]
    }
  }
  buffers { bytes: 24 category: SHARDED_PARAM unit: 0 }
  buffers { bytes: 24 category: SHARDED_PARAM unit: 0 }
  buffers { bytes: 48 category: BUCKET unit: 0 }          # 2
  buffers { bytes: 24 category: UNSHARDED_GRAD unit: 0 }  # 3, of a
  buffers { bytes: 24 category: UNSHARDED_GRAD unit: 0 }  # 4, of b
  resident: [ 0, 1 ]
  segments {
    name: "step"
    ops {
      # 0
      stream: 0
      allocs: 3
      in: 0
      out: 3
      module: 0
      phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {
      # 1
      stream: 0
      in: 3
      out: 2
      unit: 0
      phase: BACKWARD
      bucket_copy_in { parameter: 0 elems: 6 offset: 6 factor: 0.5 dtype: FP32 }
    }
    ops {
      # 2
      stream: 0
      allocs: 4
      in: 1
      out: 4
      module: 0
      phase: BACKWARD
      compute { kernel: 0 }
    }
    ops {
      # 3
      stream: 0
      in: 4
      out: 2
      unit: 0
      phase: BACKWARD
      bucket_copy_in { parameter: 1 elems: 6 factor: 0.5 dtype: FP32 }
    }
    ops {
      # 4
      stream: 1
      waits: 3
      in: 2
      out: 2
      unit: 0
      phase: BACKWARD
      all_reduce { elems: 12 dtype: FP32 reduction: SUM }
    }
    ops {
      # 5
      stream: 0
      waits: 4
      in: 2
      out: 4
      unit: 0
      phase: BACKWARD
      bucket_copy_out { parameter: 1 elems: 6 dtype: FP32 }
    }
    ops {
      # 6
      stream: 0
      in: 2
      out: 3
      unit: 0
      phase: BACKWARD
      bucket_copy_out { parameter: 0 elems: 6 offset: 6 dtype: FP32 }
    }
    ops {
      # 7
      stream: 0
      in: [ 3, 4 ]
      out: [ 0, 1 ]
      phase: OPTIMIZER
      optimizer_step {
        kind: SGD
        impl: LOOP
        learning_rate: 0.1
        elems: 6
        owners: [ 0, 1 ]
      }
    }
    ops {
      # 8
      stream: 1
      waits: 7
      in: 0
      out: 0
      unit: 0
      phase: OPTIMIZER
      broadcast { root: 0 elems: 6 dtype: FP32 }
    }
    ops {
      # 9
      stream: 1
      in: 1
      out: 1
      unit: 0
      phase: OPTIMIZER
      broadcast { root: 1 elems: 6 dtype: FP32 }
    }
    ops {
      stream: 0
      phase: OPTIMIZER
      stream_wait { on: 1 }
    }  # 10
    ops {
      frees: [ 3, 4 ]
      phase: ZERO_GRAD
      zero_grad {}
    }  # 11
  }
  segments {
    name: "start"
    ops {
      allocs: 2
      unit: 0
      phase: FORWARD
      release {}
    }
  }
  programs {
    name: "first"
    uses { segment: 1 repeat: 1 }
    uses { segment: 0 repeat: 1 }
  }
  programs {
    name: "steady"
    uses { segment: 0 repeat: 1 }
  }
)pb";

}  // namespace foreshard
