// Where the values of a plan's inputs come from, step by step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {

// Which micro-batch of which rank. The sequences of a step are numbered micro-batch by micro-batch
// and, in each, rank by rank: s = (micro_batch * world_size + rank) * sequences of a micro-batch +
// row. Values depend on s and not on how the sequences are cut into ranks and micro-batches.
struct DataPlace {
  int64_t step = 0;
  int rank = 0;
  int micro_batch = 0;
};

// Gives the values of every input of the plan that it was made for. Threads may fill at once.
//   TOKENS     the first `seq` ids of a window of seq + 1 per sequence
//   LABELS     the last `seq` ids of the same window
//   POSITIONS  0, 1, ... along the last dim
//   NORMAL     mean 0, variance 1, whatever the source of tokens
class DataSource {
 public:
  virtual ~DataSource() = default;
  // An input of an integer dtype. A file that cannot be read any more is an error.
  // REQUIRES: `out` has the input's elements.
  virtual Status Fill(int input, const DataPlace& place, std::span<int64_t> out) const = 0;
  // An input of a float dtype, before it is rounded to it. REQUIRES: `out` has the input's
  // elements.
  virtual Status Fill(int input, const DataPlace& place, std::span<float> out) const = 0;
};

// Ids of a counter-based generator, uniform in [0, limit). kInvalidPlan for inputs that no rule
// above can fill.
StatusOr<std::unique_ptr<DataSource>> SyntheticData(const pb::Plan& plan, uint64_t seed);

// Windows of a file, where a counter-based generator says. A .txt file is any bytes, each an id; a
// .bin file is little-endian uint16 ids, bare (as nanoGPT writes them) or behind the header of
// llm.c. kInvalidInput for a file of other form or fewer than seq + 1 ids, and with its position
// for the first id that is not below `limit`.
StatusOr<std::unique_ptr<DataSource>> DataFromFile(const pb::Plan& plan, const std::string& path,
                                                   uint64_t seed);

}  // namespace foreshard::exec
