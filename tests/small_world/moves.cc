#include "tests/small_world/moves.h"

#include <utility>

namespace foreshard {
namespace {

using R = PlanRequest;

template <typename Member, typename Value>
Move Set(const char* choice, const char* text, Member member, Value value) {
  return {choice, text, [member, value](SmallCase& c) { c.request.*member = value; }};
}

template <typename Member, typename Value>
Move SetFsdp1(const char* choice, const char* text, Member member, Value value) {
  return {choice, text, [member, value](SmallCase& c) { c.request.fsdp1.*member = value; }};
}

// Micro-batches of which all but the last are told something else.
Move Batches(const char* text, int count, std::function<void(MicroBatchRequest&)> change) {
  return {"micro-batches", text, [count, change = std::move(change)](SmallCase& c) {
            c.request.micro_batches = {};
            c.request.micro_batches.count = count;
            change(c.request.micro_batches);
          }};
}

// Blocks that run again, in some way.
Move Checkpoint(const char* text, std::function<void(CheckpointRequest&)> change) {
  return {"checkpoint", text, [change = std::move(change)](SmallCase& c) {
            c.request.checkpoint = {};
            c.request.checkpoint.policy = "block";
            change(c.request.checkpoint);
          }};
}

// Whoever shards.
std::vector<Move> CommonMoves() {
  return {
      Set("profile", "torch-cpu", &R::kernel_profile, "torch-cpu"),
      Set("profile", "foreshard", &R::kernel_profile, "foreshard"),
      Set("attention", "math", &R::attention, "math"),
      Set("attention", "flash", &R::attention, "flash"),
      Set("attention", "efficient", &R::attention, "efficient"),
      Set("offload", "true", &R::cpu_offload, true),
      Checkpoint("block", [](CheckpointRequest& r) { r.policy = "block"; }),
      Checkpoint("every:2", [](CheckpointRequest& r) { r.policy = "every:2"; }),
      Checkpoint("outside", [](CheckpointRequest& r) { r.outside_unit = true; }),
      Checkpoint("reentrant", [](CheckpointRequest& r) { r.reentrant = true; }),
      Checkpoint("whole", [](CheckpointRequest& r) { r.early_stop = false; }),
      Checkpoint("matmuls", [](CheckpointRequest& r) { r.save_ops = {"aten.mm.default"}; }),
      Batches("synced", 3, [](MicroBatchRequest&) {}),
      Batches("reduced-last", 3, [](MicroBatchRequest& m) { m.reduce = false; }),
      Set("original", "bf16", &R::original_dtype, DType::kBf16),
      Set("param", "fp32", &R::param_dtype, DType::kFp32),
      Set("param", "original", &R::param_dtype, std::nullopt),
      Set("param", "fp16", &R::param_dtype, DType::kFp16),
      Set("reduce", "bf16", &R::reduce_dtype, DType::kBf16),
      Set("reduce", "fp16", &R::reduce_dtype, DType::kFp16),
      Set("reduce", "library", &R::reduce_dtype, std::nullopt),
      Set("optimizer", "none", &R::optimizer, "none"),
      Set("optimizer", "sgd", &R::optimizer, "sgd"),
      Move{"optimizer", "momentum",
           [](SmallCase& c) { c.request.optimizer = "sgd", c.request.momentum = 0.9; }},
      Set("decay", "0.1", &R::weight_decay, 0.1),
      Set("impl", "foreach", &R::optimizer_impl, "foreach"),
      Set("impl", "loop", &R::optimizer_impl, "loop"),
      Set("optimizer", "adamw8bit", &R::optimizer, "adamw8bit"),
      Set("state", "bf16", &R::state_dtype, DType::kBf16),
      Set("clip", "1", &R::clip, ClipRequest{}),
      Set("loss", "cross_entropy", &R::loss, "cross_entropy"),
      Set("loss", "sum_fp32", &R::loss, "sum_fp32"),
      Set("loss", "in-model", &R::loss, "cross_entropy_in_model"),
      Move{"tied", "true", [](SmallCase& c) { c.tied = true; }},
      Move{"frozen", "embeddings", [](SmallCase& c) { c.frozen = true; }},
      Move{"model", "gpt2", [](SmallCase& c) { c.gpt2 = true; }},
  };
}

std::vector<Move> DdpMoves() {
  const auto buckets = [](const char* text, int64_t first, int64_t others) {
    return Move{"buckets", text, [first, others](SmallCase& c) {
                  c.request.ddp.first_bucket_bytes = first;
                  c.request.ddp.bucket_bytes = others;
                }};
  };
  return {
      Set("strategy", "zero1", &R::strategy, "zero1"),
      buckets("one-a-gradient", 1, 1),
      buckets("some", 500, 3000),
      Move{"views", "true", [](SmallCase& c) { c.request.ddp.gradient_as_bucket_view = true; }},
  };
}

std::vector<Move> OwnMoves(Library library) {
  if (library == Library::kDdp) return DdpMoves();
  if (library == Library::kFsdp1) {
    const auto hybrid = [](const char* strategy) {
      return Move{"strategy", strategy, [strategy](SmallCase& c) {
                    c.request.strategy = strategy;
                    c.request.replicate_size = 2;
                  }};
    };
    using F = Fsdp1Request;
    return {
        Set("strategy", "shard_grad_op", &R::strategy, "shard_grad_op"),
        Set("strategy", "no_shard", &R::strategy, "no_shard"),
        hybrid("hybrid_shard"),
        hybrid("hybrid_shard_zero2"),
        SetFsdp1("orig-params", "true", &F::use_orig_params, true),
        SetFsdp1("backward-prefetch", "post", &F::backward_prefetch, "post"),
        SetFsdp1("backward-prefetch", "none", &F::backward_prefetch, "none"),
        SetFsdp1("forward-prefetch", "true", &F::forward_prefetch, true),
        SetFsdp1("limit", "false", &F::limit_all_gathers, false),
    };
  }
  return {
      Set("torch", "2.6", &R::torch, "2.6"),
      Set("torch", "2.14", &R::torch, "2.14"),
      Set("reshard", "true", &R::reshard_after_forward, true),
      Set("reshard", "false", &R::reshard_after_forward, false),
      Set("reshard", "2", &R::reshard_after_forward, Reshard::Groups(2)),
      Set("root-reshard", "true", &R::root_reshard_after_forward, true),
      Set("root-reshard", "false", &R::root_reshard_after_forward, false),
      Set("replicate", "2", &R::replicate_size, 2),
      Set("replicate", "4", &R::replicate_size, 4),
      Move{"forward-prefetch", "1", [](SmallCase& c) { c.forward_prefetch = 1; }},
      Move{"forward-prefetch", "2", [](SmallCase& c) { c.forward_prefetch = 2; }},
      Move{"backward-prefetch", "1", [](SmallCase& c) { c.backward_prefetch = 1; }},
      Move{"backward-prefetch", "2", [](SmallCase& c) { c.backward_prefetch = 2; }},
      Set("shard-dim", "matrices", &R::shard_placements,
          std::vector<ShardPlacementRequest>{{"*", 1, 2}}),
      Set("shard-dim", "attention", &R::shard_placements,
          std::vector<ShardPlacementRequest>{{"*attn*", 1, 2}}),
      Set("reduce-buffers", "2", &R::reduce_input_buffers, 2),
      Set("divide", "1", &R::gradient_divide_factor, 1.0),
      Set("divide", "3", &R::gradient_divide_factor, 3.0),
      Set("force-sum", "true", &R::force_sum_reduction, true),
      Set("reduce-group", "true", &R::separate_reduce_group, true),
      Batches("kept", 3,
              [](MicroBatchRequest& m) { m.reduce = false, m.reshard_after_backward = false; }),
      Batches("all-reduced-last", 3, [](MicroBatchRequest& m) { m.all_reduce = false; }),
      Batches("waited-last", 3, [](MicroBatchRequest& m) { m.last_backward = false; }),
      Batches("two", 2, [](MicroBatchRequest& m) { m.reduce = false, m.last_backward = false; }),
      Set("inputs", "uncast", &R::cast_forward_inputs, false),
      Set("output", "fp32", &R::output_dtype, DType::kFp32),
  };
}

std::vector<Move> AllMoves(Library library) {
  std::vector<Move> moves = CommonMoves();
  for (Move& move : OwnMoves(library)) moves.push_back(std::move(move));
  return moves;
}

}  // namespace

const std::vector<Move>& MovesOf(Library library) {
  static const std::vector<Move> fsdp2 = AllMoves(Library::kFsdp2);
  static const std::vector<Move> fsdp1 = AllMoves(Library::kFsdp1);
  static const std::vector<Move> ddp = AllMoves(Library::kDdp);
  if (library == Library::kDdp) return ddp;
  return library == Library::kFsdp1 ? fsdp1 : fsdp2;
}

}  // namespace foreshard
