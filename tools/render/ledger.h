// Terms of a peak by name.
#pragma once

#include <cstdint>

namespace foreshard::pb {
class Peak;
}

namespace foreshard {

// Bytes of whole parameters that were alive at the peak: gathers and what they became.
int64_t GatheredAtPeak(const pb::Peak& peak);

}  // namespace foreshard
