#include "tests/small_world/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

#include "planner/families/gpt2.h"
#include "planner/families/hf_config.h"
#include "planner/families/llama.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

constexpr uint64_t kSampleSeed = 20;

// One value of a choice that is not its default.
struct Move {
  std::string choice;
  std::string value;
  std::function<void(SmallCase&)> apply;
};

template <typename Member, typename Value>
Move Set(const char* choice, const char* text, Member member, Value value) {
  return {choice, text, [member, value](SmallCase& c) { c.request.*member = value; }};
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

const std::vector<Move>& Moves() {
  using R = PlanRequest;
  static const std::vector<Move> moves = {
      Set("torch", "2.6", &R::torch, "2.6"),
      Set("torch", "2.14", &R::torch, "2.14"),
      Set("profile", "torch-cpu", &R::kernel_profile, "torch-cpu"),
      Set("profile", "foreshard", &R::kernel_profile, "foreshard"),
      Set("attention", "math", &R::attention, "math"),
      Set("attention", "flash", &R::attention, "flash"),
      Set("attention", "efficient", &R::attention, "efficient"),
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
      Set("offload", "true", &R::cpu_offload, true),
      Checkpoint("block", [](CheckpointRequest& r) { r.policy = "block"; }),
      Checkpoint("every:2", [](CheckpointRequest& r) { r.policy = "every:2"; }),
      Checkpoint("outside", [](CheckpointRequest& r) { r.outside_unit = true; }),
      Checkpoint("reentrant", [](CheckpointRequest& r) { r.reentrant = true; }),
      Checkpoint("whole", [](CheckpointRequest& r) { r.early_stop = false; }),
      Checkpoint("matmuls", [](CheckpointRequest& r) { r.save_ops = {"aten.mm.default"}; }),
      Set("divide", "1", &R::gradient_divide_factor, 1.0),
      Set("divide", "3", &R::gradient_divide_factor, 3.0),
      Set("force-sum", "true", &R::force_sum_reduction, true),
      Set("reduce-group", "true", &R::separate_reduce_group, true),
      Batches("synced", 3, [](MicroBatchRequest&) {}),
      Batches("reduced-last", 3, [](MicroBatchRequest& m) { m.reduce = false; }),
      Batches("kept", 3,
              [](MicroBatchRequest& m) { m.reduce = false, m.reshard_after_backward = false; }),
      Batches("all-reduced-last", 3, [](MicroBatchRequest& m) { m.all_reduce = false; }),
      Batches("waited-last", 3, [](MicroBatchRequest& m) { m.last_backward = false; }),
      Batches("two", 2, [](MicroBatchRequest& m) { m.reduce = false, m.last_backward = false; }),
      Set("original", "bf16", &R::original_dtype, DType::kBf16),
      Set("param", "fp32", &R::param_dtype, DType::kFp32),
      Set("param", "original", &R::param_dtype, std::nullopt),
      Set("param", "fp16", &R::param_dtype, DType::kFp16),
      Set("inputs", "uncast", &R::cast_forward_inputs, false),
      Set("output", "fp32", &R::output_dtype, DType::kFp32),
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
      Move{"model", "gpt2", [](SmallCase& c) { c.gpt2 = true; }},
  };
  return moves;
}

void Apply(const Move& move, SmallCase& c) {
  move.apply(c);
  c.name += " " + move.choice + "=" + move.value;
}

SmallCase Layout(const std::string& wrap, int blocks, int ranks) {
  SmallCase c;
  c.name = fmt::format("{}, {} blocks, {} ranks:", wrap, blocks, ranks);
  c.blocks = blocks;
  c.request.wrap = wrap;
  c.request.world_size = ranks;
  c.request.seq = 4;
  return c;
}

std::vector<SmallCase> Layouts() {
  std::vector<SmallCase> layouts;
  for (const char* wrap : {"block", "every:2", "whole", "titan"}) {
    for (int blocks = 1; blocks <= 3; ++blocks) {
      for (int ranks = 1; ranks <= 4; ++ranks) layouts.push_back(Layout(wrap, blocks, ranks));
    }
  }
  return layouts;
}

// Sizes that no number of ranks divides all of.
StatusOr<pb::Model> TinyLlama(int blocks, bool tied) {
  ASSIGN_OR_RETURN(const HfConfig config, HfConfig::Parse(fmt::format(R"({{
    "model_type": "llama", "hidden_size": 20, "intermediate_size": 14, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_hidden_layers": {}, "vocab_size": 11,
    "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": {}}})",
                                                                      blocks, tied),
                                                          "tiny"));
  return LlamaModel(config);
}

// Its dropouts are those of GPT2Config: of embeddings, attention and residuals.
StatusOr<pb::Model> TinyGpt2(int blocks, bool tied) {
  ASSIGN_OR_RETURN(const HfConfig config, HfConfig::Parse(fmt::format(R"({{
    "model_type": "gpt2", "n_embd": 20, "n_inner": 14, "n_head": 2, "n_layer": {}, "vocab_size": 11,
    "n_positions": 16, "tie_word_embeddings": {}}})",
                                                                      blocks, tied),
                                                          "tiny"));
  return Gpt2Model(config);
}

// Each of the wrapped blocks with the next `ahead` of them, which are before it in backward.
std::vector<PrefetchRequest> Prefetches(const SmallCase& c, int ahead, int direction) {
  std::vector<PrefetchRequest> rows;
  const int every = c.request.wrap == "every:2" ? 2 : 1;
  const auto path = [&](int block) {
    return fmt::format("{}.{}", c.gpt2 ? "transformer.h" : "model.layers", block);
  };
  for (int block = 0; ahead > 0 && block < c.blocks; block += every) {
    PrefetchRequest row{path(block), {}};
    for (int i = 1; i <= ahead; ++i) {
      const int target = block + direction * i * every;
      if (0 <= target && target < c.blocks) row.targets.push_back(path(target));
    }
    if (!row.targets.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<SmallCase> SmallLayouts(size_t most_per_layout) {
  const std::vector<Move>& moves = Moves();
  std::mt19937_64 random(kSampleSeed);
  std::vector<SmallCase> cases;
  for (const SmallCase& layout : Layouts()) {
    std::vector<SmallCase> pairs;
    cases.push_back(layout);
    for (size_t i = 0; i < moves.size(); ++i) {
      SmallCase& single = cases.emplace_back(layout);
      Apply(moves[i], single);
      for (size_t j = i + 1; j < moves.size(); ++j) {
        if (moves[i].choice != moves[j].choice) Apply(moves[j], pairs.emplace_back(single));
      }
    }
    if (pairs.size() + moves.size() + 1 > most_per_layout) {
      std::shuffle(pairs.begin(), pairs.end(), random);
      pairs.resize(most_per_layout - std::min(most_per_layout, moves.size() + 1));
    }
    cases.insert(cases.end(), pairs.begin(), pairs.end());
  }
  return cases;
}

std::vector<SmallCase> RandomSmallCases(size_t count, uint64_t seed) {
  const std::vector<SmallCase> layouts = Layouts();
  const std::vector<Move>& moves = Moves();
  std::mt19937_64 random(seed);
  std::vector<SmallCase> cases;
  while (cases.size() < count) {
    SmallCase c = layouts[random() % layouts.size()];
    for (const Move& move : moves) {
      if (random() % 3 == 0) Apply(move, c);  // the last one of a choice holds
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

StatusOr<pb::Plan> PlanOfCase(const SmallCase& small) {
  ASSIGN_OR_RETURN(const pb::Model model, small.gpt2 ? TinyGpt2(small.blocks, small.tied)
                                                     : TinyLlama(small.blocks, small.tied));
  PlanRequest request = small.request;
  request.forward_prefetch = Prefetches(small, small.forward_prefetch, 1);
  request.backward_prefetch = Prefetches(small, small.backward_prefetch, -1);
  return MakePlan(model, request);
}

}  // namespace foreshard
