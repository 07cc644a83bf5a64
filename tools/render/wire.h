// What a GPU puts on the wire in a steady step.
#pragma once

#include <cstdint>

namespace foreshard::pb {
class Report;
}

namespace foreshard {

int64_t PayloadBytes(const pb::Report& report);  // full buffers, all-reduces twice
int64_t SentBytes(const pb::Report& report);     // of them by one GPU in rings

}  // namespace foreshard
