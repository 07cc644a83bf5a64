#include "tools/render/wire.h"

#include "proto/report.pb.h"

namespace foreshard {

int64_t PayloadBytes(const pb::Report& report) {
  int64_t bytes = 0;
  for (const pb::CollectiveTotal& total : report.collectives()) bytes += total.payload_bytes();
  return bytes;
}

int64_t SentBytes(const pb::Report& report) {
  int64_t bytes = 0;
  for (const pb::CollectiveTotal& total : report.collectives()) bytes += total.wire_bytes();
  return bytes;
}

}  // namespace foreshard
