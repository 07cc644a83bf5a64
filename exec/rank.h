// One rank's part of a run: walks the plan in issue order and hands its ops to the device. Decides
// nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "exec/data.h"
#include "exec/device.h"
#include "exec/failure.h"
#include "exec/log.h"
#include "exec/scoreboard.h"
#include "exec/shard_map.h"
#include "exec/weights.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {

// Whole tensors in the plan's order that ranks fill with their shards, each its own part.
using TensorBytes = std::vector<std::vector<std::byte>>;

// What all ranks of a run share.
struct RunContext {
  const pb::Plan& plan;
  const WeightSource& weights;
  const DataSource& data;
  uint64_t seed = 0;
  std::vector<int> programs;  // of each step
  Scoreboard& scoreboard;
  TensorBytes* final_weights = nullptr;   // nullptr = nobody asks
  TensorBytes* last_gradients = nullptr;  // likewise, by trainable parameter
};

class RankRunner {
 public:
  // REQUIRES: everything outlives the runner.
  RankRunner(const RunContext& context, int rank, const PreparedPlan& prepared, Device& device,
             Communicator& communicator);

  // Loads, runs all steps and waits for their end.
  Status Run();
  const RankLog& log() const { return log_; }

 private:
  struct Pending {                           // of a step, until it has ended
    std::vector<Event*> ends;                // one a stream
    std::deque<std::vector<std::byte>> fed;  // inputs on their way to the device
    std::deque<std::vector<std::byte>> losses;
    std::vector<DType> loss_types;
    double squared_norm = 0;
    bool has_norm = false;
  };

  struct GroupEnd {  // of the last collective of a group
    Event* event = nullptr;
    int stream = kNoStream;
    int step = 0;
  };

  Status Load();
  Status LoadParameter(int parameter, std::vector<std::byte>& shard);
  Status LoadModuleBuffer(const pb::ModuleBuffer& row);
  Status WriteNow(int buffer, std::vector<std::byte> bytes);
  Status FeedInputs(int micro_batch);

  Status RunStep(int step);
  Status RunSegment(int segment, int repetition);
  Status Issue(const PreparedOp& op, std::vector<Event*>& events);
  Status AwaitRecord(const RecordWait& wait, const PreparedOp& op);
  void Record(int event, int stream);
  Status FreeBuffer(int buffer, const PreparedOp& op);
  StatusOr<Block> Find(int buffer, const PreparedOp& op) const;
  StatusOr<std::vector<Block>> FindAll(const std::vector<int>& buffers, const PreparedOp& op) const;
  Status Launch(const PreparedOp& op, TimeSpan* span);
  void ReadLoss(const PreparedOp& op);
  void ReadGradients(const PreparedOp& op);
  void ReadShard(int stream, const ShardMap& shards, int parameter, const Block& shard,
                 std::vector<std::byte>& whole);
  Status AwaitOldest();
  Status ReadWeights();
  // Others' shards are the same.
  bool IsFirstReplica() const { return rank_ < context_.plan.mesh().shard_size(); }
  int StreamOf(int buffer) const { return context_.plan.buffers(buffer).stream(); }
  Pool PoolOf(int buffer) const { return {StreamOf(buffer), context_.plan.buffers(buffer).host()}; }
  int MicroBatchOf(const PreparedOp& op) const { return op.micro_batch + instance_.repetition; }

  const RunContext& context_;
  const int rank_;
  const PreparedPlan& prepared_;
  Device& device_;
  Communicator& communicator_;
  std::vector<std::byte> loading_;  // on its way to the device, even if the run fails meanwhile
  std::vector<Block> blocks_;       // by buffer; of those that are alive
  std::vector<GroupEnd> group_ends_;
  std::vector<std::deque<Event*>> records_;  // by event of the plan; those that may be waited for,
                                             // latest first
  std::vector<int32_t> records_kept_;        // of each
  std::deque<Pending> pending_;              // steps that may not have ended, oldest first
  int awaited_steps_ = 0;
  int step_ = 0;
  int micro_batch_ = -1;  // that the inputs hold
  run::OpInstance instance_;
  RankLog log_;
};

}  // namespace foreshard::exec
