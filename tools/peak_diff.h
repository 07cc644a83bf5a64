// Why one peak is bigger than another: their ledgers side by side, and the buffers that differ.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/report.pb.h"

namespace foreshard {

// Bytes at the peak of A and at the peak of B.
struct PeakRow {
  std::string name;                  // of the ledger's term, or the category
  std::string owner;                 // unit or module class; empty for terms of the ledger
  int64_t count_a = 0, count_b = 0;  // buffers; 0 for terms
  int64_t bytes_a = 0, bytes_b = 0;
  int64_t change() const { return bytes_b - bytes_a; }
};

struct PeakDiff {
  std::vector<PeakRow> ledger;   // every term of either, in the reports' order; sums to the peaks
  std::vector<PeakRow> buffers;  // groups of unlike bytes, the largest change first
  int64_t alike_bytes = 0;       // of the groups that hold the same in both
};

// The buffers' changes sum to the difference of the peaks, as the ledger's do.
PeakDiff DiffPeaks(const pb::Report& a, const pb::Report& b);

// {"schema_version", "a", "b", "ledger": [...], "buffers": [...]}.
nlohmann::ordered_json PeakDiffAsJson(const std::string& name_a, const std::string& name_b,
                                      const PeakDiff& diff);

}  // namespace foreshard
