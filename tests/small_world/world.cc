#include "tests/small_world/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "planner/families/gpt2.h"
#include "planner/families/hf_config.h"
#include "planner/families/llama.h"
#include "proto/model.pb.h"
#include "tests/small_world/moves.h"

namespace foreshard {
namespace {

constexpr uint64_t kSampleSeed = 20;

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

std::vector<SmallCase> Layouts(Library library) {
  std::vector<SmallCase> layouts;
  for (const char* wrap : {"block", "every:2", "whole", "titan"}) {
    for (int blocks = 1; blocks <= 3; ++blocks) {
      for (int ranks = 1; ranks <= 4; ++ranks) {
        layouts.push_back(Layout(wrap, blocks, ranks));
        if (library == Library::kFsdp1) layouts.back().request.strategy = "full_shard";
        if (library == Library::kDdp) layouts.back().request.strategy = "ddp";
      }
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

void FreezeEmbeddings(pb::Module& module) {
  const bool is_embedding = module.class_() == "Embedding";
  for (pb::ModelParameter& p : *module.mutable_params()) p.set_frozen(is_embedding);
  for (pb::Module& child : *module.mutable_children()) FreezeEmbeddings(child);
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

std::string Name(Library library) {
  if (library == Library::kDdp) return "Ddp";
  return library == Library::kFsdp1 ? "Fsdp1" : "Fsdp2";
}

std::vector<SmallCase> SmallLayouts(size_t most_per_layout, Library library) {
  const std::vector<Move>& moves = MovesOf(library);
  std::mt19937_64 random(kSampleSeed);
  std::vector<SmallCase> cases;
  for (const SmallCase& layout : Layouts(library)) {
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

std::vector<SmallCase> RandomSmallCases(size_t count, uint64_t seed, Library library) {
  const std::vector<SmallCase> layouts = Layouts(library);
  const std::vector<Move>& moves = MovesOf(library);
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
  ASSIGN_OR_RETURN(pb::Model model, small.gpt2 ? TinyGpt2(small.blocks, small.tied)
                                               : TinyLlama(small.blocks, small.tied));
  if (small.frozen) FreezeEmbeddings(*model.mutable_root());
  PlanRequest request = small.request;
  request.forward_prefetch = Prefetches(small, small.forward_prefetch, 1);
  request.backward_prefetch = Prefetches(small, small.backward_prefetch, -1);
  return MakePlan(model, request);
}

}  // namespace foreshard
