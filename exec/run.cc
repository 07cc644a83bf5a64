#include "exec/run.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include "exec/cpu/backend.h"
#include "exec/environment.h"
#include "exec/measure.h"
#include "exec/prepare.h"
#include "exec/rank.h"
#include "exec/shard_map.h"
#include "proto/base/units_text.h"
#include "proto/run/program.h"

namespace foreshard::exec {
namespace {

// Each of the plan's programs once, and the last of them again and again.
std::vector<int> ProgramsOf(const pb::Plan& plan, int steps) {
  std::vector<int> programs;
  for (int s = 0; s < steps; ++s) programs.push_back(std::min(s, plan.programs_size() - 1));
  return programs;
}

StatusOr<std::vector<PreparedPlan>> PrepareAll(const pb::Plan& plan) {
  std::vector<PreparedPlan> prepared;
  for (int rank = 0; rank < plan.mesh().world_size(); ++rank) {
    StatusOr<PreparedPlan> one = Prepare(plan, rank);
    if (!one.ok()) return one.status().At(fmt::format("rank {}", rank));
    prepared.push_back(std::move(one).value());
  }
  return prepared;
}

// Bytes that a rank's blocks take when freed ones are kept for buffers of the same size and pool.
int64_t BlockBytes(const pb::Plan& plan, const PreparedPlan& prepared) {
  std::map<std::pair<Pool, int64_t>, int64_t> kept;
  int64_t total = 0;
  const auto key = [&](int buffer) {
    const pb::Buffer& b = plan.buffers(buffer);
    return std::pair(Pool{b.stream(), b.host()}, prepared.buffer_bytes[buffer]);
  };
  for (const int buffer : plan.resident()) total += prepared.buffer_bytes[buffer];
  for (const PreparedSegment& segment : prepared.segments) {
    for (const PreparedOp& op : segment.ops) {
      for (const int buffer : op.allocs) {
        int64_t& blocks = kept[key(buffer)];
        if (blocks-- <= 0) blocks = 0, total += prepared.buffer_bytes[buffer];
      }
      for (const int buffer : op.frees) ++kept[key(buffer)];
    }
  }
  return total;
}

// What one run needs while it lasts.
class Crew {
 public:
  Crew(Backend& backend, FailureFlag& failure, const RunContext& context,
       const std::vector<PreparedPlan>& prepared)
      : failure_(failure), scoreboard_(context.scoreboard) {
    const int streams = context.plan.streams_size();
    for (int rank = 0; rank < static_cast<int>(prepared.size()); ++rank) {
      Member& m = members_.emplace_back();
      m.device = backend.MakeDevice(rank, prepared[rank], streams);
      m.communicator = backend.MakeCommunicator(rank);
      m.runner =
          std::make_unique<RankRunner>(context, rank, prepared[rank], *m.device, *m.communicator);
    }
  }

  void Start() {
    for (Member& m : members_) m.thread = std::thread([this, &m] { Work(m); });
  }
  void Join() {
    for (Member& m : members_) m.thread.join();
  }
  const RankLog& log(int rank) const { return members_[rank].runner->log(); }
  int size() const { return static_cast<int>(members_.size()); }

 private:
  struct Member {
    std::unique_ptr<RankRunner> runner;  // the device's last work may still write to it
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Device> device;
    std::thread thread;
  };

  void Work(Member& m) {
    try {
      if (const Status status = m.runner->Run(); !status.ok()) failure_.Raise(status);
    } catch (const std::exception& e) {
      failure_.Raise(Internal(std::string("a rank's thread ended with: ") + e.what()));
    } catch (...) {
      failure_.Raise(Internal("a rank's thread ended with an exception of unknown type"));
    }
    m.communicator->Leave();
    scoreboard_.Finish();
  }

  FailureFlag& failure_;
  Scoreboard& scoreboard_;
  std::vector<Member> members_;  // none moves once threads have started
};

// Losses are the mean over all ranks, the gradient is that of the first `shards`: others hold
// copies.
StepResult Combine(int step, const std::vector<RankStep>& ranks, int shards) {
  StepResult result;
  result.step = step;
  result.losses.assign(ranks[0].losses.size(), 0);
  double squares = 0;
  for (const RankStep& rank : ranks) {
    for (size_t i = 0; i < rank.losses.size(); ++i) result.losses[i] += rank.losses[i];
  }
  for (int r = 0; r < shards; ++r) squares += ranks[r].squared_norm;
  for (double& loss : result.losses) loss /= static_cast<double>(ranks.size());
  result.has_gradient_norm = ranks[0].has_norm;
  result.gradient_norm = std::sqrt(squares);
  return result;
}

TensorBytes Room(const pb::Plan& plan, const std::vector<int>& parameters) {
  const ShardMap shards(plan, 0);
  TensorBytes room;
  for (const int p : parameters) {
    room.emplace_back(shards.numel(p) * SizeOf(shards.dtype(p)));
  }
  return room;
}

std::vector<NamedTensor> Named(const pb::Plan& plan, const std::vector<int>& parameters,
                               TensorBytes bytes) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const pb::Parameter& p = plan.parameters(parameters[i]);
    tensors.push_back({p.path(),
                       static_cast<DType>(p.dtype()),
                       {p.shape().begin(), p.shape().end()},
                       std::move(bytes[i])});
  }
  return tensors;
}

std::vector<RankRecord> Records(const pb::Plan& plan, const std::vector<PreparedPlan>& prepared,
                                const Crew& crew) {
  std::vector<RankRecord> records;
  for (int rank = 0; rank < crew.size(); ++rank) {
    RankRecord& record = records.emplace_back();
    record.program = run::Flatten(plan, rank);
    for (size_t b = 0; b < prepared[rank].buffer_bytes.size(); ++b) {
      record.program.buffer_bytes[b] = Bytes(prepared[rank].buffer_bytes[b]);
    }
    record.log = &crew.log(rank);
  }
  return records;
}

Status CheckMemory(const pb::Plan& plan, const std::vector<PreparedPlan>& prepared) {
  int64_t needed = 0;
  for (const PreparedPlan& rank : prepared) needed += BlockBytes(plan, rank);
  const int64_t available = AvailableMemory();
  if (available == 0 || needed <= available) return OkStatus();
  return Unavailable(fmt::format(
      "memory: {} ranks need {} together, this machine has {} available; lower --world, --seq or "
      "--micro-batch when planning",
      prepared.size(), FormatBytes(Bytes(needed)), FormatBytes(Bytes(available))));
}

}  // namespace

StatusOr<RunOutcome> RunOn(Backend& backend, FailureFlag& failure, const pb::Plan& plan,
                           const WeightSource& weights, const DataSource& data,
                           const RunOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<PreparedPlan> prepared, PrepareAll(plan));
  RETURN_IF_ERROR(CheckMemory(plan, prepared));
  const ShardMap shards(plan, 0);
  std::vector<int> all(plan.parameters_size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  TensorBytes final_weights = options.keeps_weights ? Room(plan, all) : TensorBytes{};
  TensorBytes gradients = options.keeps_gradients ? Room(plan, shards.Trainable()) : TensorBytes{};
  Scoreboard scoreboard(plan.mesh().world_size(), options.steps);
  RunContext context{plan,
                     weights,
                     data,
                     options.seed,
                     ProgramsOf(plan, options.steps),
                     scoreboard,
                     options.keeps_weights ? &final_weights : nullptr,
                     options.keeps_gradients ? &gradients : nullptr};
  Crew crew(backend, failure, context, prepared);
  RunOutcome outcome;
  crew.Start();
  for (int step = 0; step < options.steps; ++step) {
    const std::vector<RankStep> ranks = scoreboard.Get(step);
    if (ranks.empty()) break;
    outcome.steps.push_back(Combine(step, ranks, shards.ranks()));
    if (options.on_step) options.on_step(outcome.steps.back());
  }
  crew.Join();
  RETURN_IF_ERROR(failure.Cause());
  const std::vector<RankRecord> records = Records(plan, prepared, crew);
  ASSIGN_OR_RETURN(outcome.report, Measure(plan, records, options.report_rank));
  for (int rank = 0; options.keeps_timelines && rank < crew.size(); ++rank) {
    outcome.timelines.push_back(TimelineOf(plan, records[rank], rank));
  }
  if (options.keeps_weights) outcome.weights = Named(plan, all, std::move(final_weights));
  if (options.keeps_gradients) {
    outcome.gradients = Named(plan, shards.Trainable(), std::move(gradients));
  }
  return outcome;
}

StatusOr<RunOutcome> RunOnCpu(const pb::Plan& plan, const WeightSource& weights,
                              const DataSource& data, bool poisons, const RunOptions& options) {
  FailureFlag failure;
  CpuBackend backend(plan, poisons, failure);
  return RunOn(backend, failure, plan, weights, data, options);
}

}  // namespace foreshard::exec
