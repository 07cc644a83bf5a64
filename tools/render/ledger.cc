#include "tools/render/ledger.h"

#include "proto/report.pb.h"

namespace foreshard {

int64_t GatheredAtPeak(const pb::Peak& peak) {
  int64_t bytes = 0;
  for (const pb::LedgerTerm& term : peak.ledger()) {
    if (term.name() == "gathered parameters") bytes += term.bytes();
  }
  return bytes;
}

}  // namespace foreshard
