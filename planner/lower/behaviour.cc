#include "planner/lower/behaviour.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdio>

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

void Since215(Behaviour& b) {
  b.drops_previous_gather_first = true;
  b.last_gradient_survives_reduction = false;
  b.reduces_in_original_dtype = true;
  b.casts_leaf_gradients = false;
}

}  // namespace

StatusOr<Behaviour> BehaviourOf(const std::string& version) {
  ASSIGN_OR_RETURN(const Version v, ParseVersion(version));
  if (!(Version{2, 14} <= v)) {
    return InvalidArgument(fmt::format(
        "torch: version {} is older than 2.14, the oldest that is modelled; use 2.14 or newer",
        version));
  }
  Behaviour behaviour;
  behaviour.torch = "2.14";
  if (Version{2, 15} <= v) {
    Since215(behaviour);
    behaviour.torch = "2.15";
  }
  return behaviour;
}

}  // namespace foreshard
