#include "tools/combinations.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "proto/base/units_text.h"
#include "tools/own_options.h"

namespace foreshard {
namespace {

constexpr size_t kMaxCombinations = 10'000;  // minutes of work, and a table nobody reads

template <typename T>
std::vector<T> Unique(const std::vector<T>& values) {
  std::vector<T> unique;
  for (const T& value : values) {
    if (std::ranges::find(unique, value) == unique.end()) unique.push_back(value);
  }
  return unique;
}

// Every combination so far with each of `values` put in by `set`.
template <typename T>
std::vector<Combination> Times(const std::vector<Combination>& so_far, const std::vector<T>& values,
                               const std::function<void(Combination&, const T&)>& set) {
  std::vector<Combination> product;
  for (const Combination& one : so_far) {
    for (const T& value : values) set(product.emplace_back(one), value);
  }
  return product;
}

struct Lists {
  std::vector<std::string> strategies, wraps, clusters, reshards, acs;
  std::vector<int64_t> worlds, seqs, micro_batch_sizes, replicates, micro_batches;

  // Stops multiplying once it is too many, so that nothing overflows.
  size_t Count() const {
    size_t count = 1;
    for (const size_t n : {strategies.size(), wraps.size(), worlds.size(), clusters.size(),
                           seqs.size(), micro_batch_sizes.size(), reshards.size(),
                           replicates.size(), micro_batches.size(), acs.size()}) {
      if (count <= kMaxCombinations) count *= n;
    }
    return count;
  }
};

struct FlagOf {
  const char* name;
  std::function<std::string(const Combination&)> value;
};

const std::vector<FlagOf>& Flags() {
  static const auto& flags = *new std::vector<FlagOf>{
      {"--strategy", [](const Combination& c) { return c.choice.strategy; }},
      {"--wrap", [](const Combination& c) { return c.choice.wrap; }},
      {"--world", [](const Combination& c) { return std::to_string(c.choice.world); }},
      {"--cluster", [](const Combination& c) { return c.cluster; }},
      {"--seq", [](const Combination& c) { return std::to_string(c.choice.seq); }},
      {"--micro-batch", [](const Combination& c) { return std::to_string(c.choice.micro_batch); }},
      {"--reshard-after-forward",
       [](const Combination& c) { return c.choice.reshard_after_forward; }},
      {"--replicate", [](const Combination& c) { return std::to_string(c.choice.replicate); }},
      {"--micro-batches",
       [](const Combination& c) { return std::to_string(c.choice.micro_batches); }},
      {"--ac", [](const Combination& c) { return c.choice.ac; }},
  };
  return flags;
}

}  // namespace

StatusOr<std::vector<Combination>> Combinations(const PlanFlags& flags,
                                                const std::vector<std::string>& clusters) {
  const Lists lists = {.strategies = Unique(flags.strategies),
                       .wraps = Unique(flags.wraps),
                       .clusters = Unique(clusters),
                       .reshards = Unique(flags.reshards_after_forward),
                       .acs = Unique(flags.acs),
                       .worlds = Unique(flags.worlds),
                       .seqs = Unique(flags.seqs),
                       .micro_batch_sizes = Unique(flags.micro_batch_sizes),
                       .replicates = Unique(flags.replicates),
                       .micro_batches = Unique(flags.micro_batches)};
  if (lists.Count() > kMaxCombinations) {
    return InvalidArgument(fmt::format(
        "--strategy, --wrap, --world, --cluster, --seq, --micro-batch, --reshard-after-forward, "
        "--replicate, "
        "--micro-batches, --ac: more than {} combinations; ask for fewer values at a time",
        FormatCount(kMaxCombinations)));
  }
  using Text = std::string;
  std::vector<Combination> all(1);
  all = Times<Text>(all, lists.strategies, [](auto& c, const auto& v) { c.choice.strategy = v; });
  all = Times<Text>(all, lists.wraps, [](auto& c, const auto& v) { c.choice.wrap = v; });
  all = Times<int64_t>(all, lists.worlds, [](auto& c, const auto& v) { c.choice.world = v; });
  all = Times<Text>(all, lists.clusters, [](auto& c, const auto& v) { c.cluster = v; });
  all = Times<int64_t>(all, lists.seqs, [](auto& c, const auto& v) { c.choice.seq = v; });
  all = Times<int64_t>(all, lists.micro_batch_sizes,
                       [](auto& c, const auto& v) { c.choice.micro_batch = v; });
  all = Times<Text>(all, lists.reshards,
                    [](auto& c, const auto& v) { c.choice.reshard_after_forward = v; });
  all =
      Times<int64_t>(all, lists.replicates, [](auto& c, const auto& v) { c.choice.replicate = v; });
  all = Times<int64_t>(all, lists.micro_batches,
                       [](auto& c, const auto& v) { c.choice.micro_batches = v; });
  all = Times<Text>(all, lists.acs, [](auto& c, const auto& v) { c.choice.ac = v; });
  if (lists.strategies.size() == 1) return all;
  for (Combination& one : all) KeepOwnChoices(one.choice);
  return Unique(all);
}

std::string NameOf(const Combination& combination, const std::vector<Combination>& all) {
  std::string name;
  for (const FlagOf& flag : Flags()) {
    const std::string value = flag.value(combination);
    const bool varies =
        std::ranges::any_of(all, [&](const Combination& c) { return flag.value(c) != value; });
    if (varies) name += fmt::format("{}{} {}", name.empty() ? "" : " ", flag.name, value);
  }
  return name;
}

}  // namespace foreshard
