#include "planner/lower/behaviour.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdio>
#include <iterator>

namespace foreshard {
namespace {

struct Version {
  int major = 0;
  int minor = 0;
  bool operator<=(const Version& o) const {
    return major != o.major ? major < o.major : minor <= o.minor;
  }
};

StatusOr<Version> ParseVersion(const std::string& text) {
  Version v;
  int used = 0;
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])) || text.size() > 32 ||
      std::sscanf(text.c_str(), "%4d.%4d%n", &v.major, &v.minor, &used) != 2) {
    return InvalidArgument(
        fmt::format("torch: \"{}\" is no version; expected something like 2.15", text));
  }
  const char rest = text[static_cast<size_t>(used)];
  if (rest != '\0' && rest != '.' && rest != '+') {
    return InvalidArgument(
        fmt::format("torch: \"{}\" is no version; expected something like 2.15", text));
  }
  return v;
}

// Each row says only what changed against the row before.
struct Profile {
  Version since;
  void (*change)(Behaviour&);
};

constexpr Profile kProfiles[] = {
    {{2, 6}, [](Behaviour&) {}},
    {{2, 8}, [](Behaviour& b) { b.root_may_reshard = true; }},
    {{2, 13}, [](Behaviour& b) { b.refuses_shared_parameters = true; }},
    {{2, 14},
     [](Behaviour& b) {
       b.alone_uses_collectives = false;
       b.reshards_after_recompute = false;
       b.unshards_in_recompute = true;
       b.ends_with_unsharded_units = false;
       b.recycles_only_to_reduce = false;
     }},
    {{2, 15},
     [](Behaviour& b) {
       b.drops_previous_gather_first = true;
       b.last_gradient_survives_reduction = false;
       b.reduces_in_original_dtype = true;
       b.casts_leaf_gradients = false;
       b.accumulates_apart = false;
       b.waits_once_at_end = true;
     }},
};

}  // namespace

StatusOr<Behaviour> BehaviourOf(const std::string& version) {
  ASSIGN_OR_RETURN(const Version v, ParseVersion(version));
  const Version oldest = std::begin(kProfiles)->since;
  if (!(oldest <= v)) {
    return InvalidArgument(fmt::format(
        "torch: version {} is older than {}.{}, the oldest that is modelled; use {}.{} or newer",
        version, oldest.major, oldest.minor, oldest.major, oldest.minor));
  }
  Behaviour behaviour;
  for (const Profile& profile : kProfiles) {
    if (!(profile.since <= v)) break;
    profile.change(behaviour);
    behaviour.torch = fmt::format("{}.{}", profile.since.major, profile.since.minor);
  }
  behaviour.newer_than_known = !(v <= std::prev(std::end(kProfiles))->since);
  return behaviour;
}

}  // namespace foreshard
