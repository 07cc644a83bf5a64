// A rank that fails, whatever the way, ends the run with the first cause; nobody waits for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>

#include "exec/cpu/backend.h"
#include "exec/cpu/device.h"
#include "exec/run.h"
#include "tests/small_world/world.h"

namespace foreshard::exec {
namespace {

using testing::HasSubstr;

SmallCase Case(int ranks) {
  SmallCase c;
  c.blocks = 2;
  c.request.world_size = ranks;
  c.request.seq = 4;
  return c;
}

// What goes wrong, when and where.
struct Fault {
  int rank = 1;
  std::function<void(const Launch&)> on_issue;     // by the issuing thread, before an op is queued
  std::function<void(PreparedOp&)> on_collective;  // changes what the rank brings to it
  bool runs_out_of_memory = false;
};

class FaultyDevice final : public CpuDevice {
 public:
  FaultyDevice(const PreparedPlan& plan, int streams, FailureFlag& failure, const Fault& fault)
      : CpuDevice(plan, streams, true, failure), fault_(fault) {}
  void Run(int stream, const Launch& launch) override {
    if (fault_.on_issue) fault_.on_issue(launch);
    CpuDevice::Run(stream, launch);
  }
  StatusOr<Block> Allocate(int64_t bytes, Pool pool) override {
    if (fault_.runs_out_of_memory && ++allocations_ > 100) return Unavailable("memory: none left");
    return CpuDevice::Allocate(bytes, pool);
  }

 private:
  const Fault& fault_;
  int allocations_ = 0;
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, const Fault& fault)
      : inner_(std::move(inner)), fault_(fault) {}
  void Run(Device& device, int stream, const Launch& launch) override {
    if (!fault_.on_collective) return inner_->Run(device, stream, launch);
    changed_.push_back(std::make_unique<PreparedOp>(*launch.op));
    fault_.on_collective(*changed_.back());
    Launch other = launch;
    other.op = changed_.back().get();
    inner_->Run(device, stream, other);
  }
  void Leave() override { inner_->Leave(); }

 private:
  std::unique_ptr<Communicator> inner_;
  const Fault& fault_;
  std::vector<std::unique_ptr<PreparedOp>> changed_;
};

class FaultyBackend final : public Backend {
 public:
  FaultyBackend(const pb::Plan& plan, FailureFlag& failure, Fault fault)
      : inner_(plan, true, failure), failure_(failure), fault_(std::move(fault)) {}
  std::unique_ptr<Device> MakeDevice(int rank, const PreparedPlan& plan, int streams) override {
    if (rank != fault_.rank) return inner_.MakeDevice(rank, plan, streams);
    return std::make_unique<FaultyDevice>(plan, streams, failure_, fault_);
  }
  std::unique_ptr<Communicator> MakeCommunicator(int rank) override {
    if (rank != fault_.rank) return inner_.MakeCommunicator(rank);
    return std::make_unique<FaultyCommunicator>(inner_.MakeCommunicator(rank), fault_);
  }

 private:
  CpuBackend inner_;
  FailureFlag& failure_;
  const Fault fault_;
};

Status RunWith(Fault fault, int ranks = 3, int replicas = 1) {
  SmallCase c = Case(ranks);
  c.request.replicate_size = replicas;
  const pb::Plan plan = PlanOfCase(c).value();
  const auto weights = WeightsFromSeed(plan, 1).value();
  const auto data = SyntheticData(plan, 1).value();
  FailureFlag failure;
  FaultyBackend backend(plan, failure, std::move(fault));
  RunOptions options;
  options.steps = 4;
  return RunOn(backend, failure, plan, *weights, *data, options).status();
}

// At the n-th op that the rank's compute and copy streams are given.
std::function<void(const Launch&)> AtOp(int n, std::function<void()> act) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  return [=](const Launch&) {
    if (++*count == n) act();
  };
}

TEST(Failure, WithoutAFaultTheRunIsFine) {
  const Status status = RunWith({});
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Failure, AnIssuingThreadThatThrowsEndsTheRun) {
  for (const int op : {1, 10, 50, 200, 400}) {
    Fault fault;
    fault.on_issue = AtOp(op, [] { throw std::runtime_error("the wire is cut"); });
    const Status status = RunWith(std::move(fault));
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("the wire is cut"));
  }
}

TEST(Failure, AnythingThatIsThrownIsCaught) {
  Fault fault;
  fault.on_issue = AtOp(20, [] { throw 7; });
  EXPECT_THAT(RunWith(std::move(fault)).message(), HasSubstr("unknown type"));
}

TEST(Failure, ARankWithoutMemoryEndsTheRun) {
  Fault fault;
  fault.runs_out_of_memory = true;
  const Status status = RunWith(std::move(fault));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "memory: none left");
}

TEST(Failure, SizesThatDoNotMatchAreNamedWithTheirRanks) {
  Fault fault;
  fault.rank = 2;
  fault.on_collective = [](PreparedOp& op) {
    if (auto* gather = std::get_if<GatherSlices>(&op.work)) gather->slice -= 1;
  };
  EXPECT_THAT(RunWith(std::move(fault)).message(),
              testing::AllOf(HasSubstr("collective mismatch"), HasSubstr("rank 2"),
                             HasSubstr("a gather of"), HasSubstr("all_gather")));
}

TEST(Failure, TypesAndReductionsThatDoNotMatchAreNamed) {
  Fault types;
  types.on_collective = [](PreparedOp& op) {
    if (auto* gather = std::get_if<GatherSlices>(&op.work)) gather->dtype = DType::kFp16;
  };
  EXPECT_THAT(RunWith(std::move(types)).message(), HasSubstr("fp16"));
  Fault reductions;
  reductions.on_collective = [](PreparedOp& op) {
    if (auto* reduce = std::get_if<ReduceSlices>(&op.work)) reduce->average = false;
  };
  EXPECT_THAT(RunWith(std::move(reductions)).message(),
              testing::AllOf(HasSubstr("a mean of"), HasSubstr("a sum of")));
}

TEST(Failure, CollectivesInAnotherOrderAreNamed) {
  Fault fault;
  fault.on_collective = [](PreparedOp& op) { op.place = "elsewhere"; };
  EXPECT_THAT(RunWith(std::move(fault)).message(), HasSubstr("elsewhere"));
}

// Of four ranks two share a shard: the others are stopped although they are in other groups.
TEST(Failure, ARankThatFailsBeforeAnAllReduceStopsAllGroups) {
  EXPECT_TRUE(RunWith({}, 4, 2).ok());
  Fault fault;
  fault.rank = 3;
  fault.on_collective = [](PreparedOp& op) {
    if (std::holds_alternative<ReduceInPlace>(op.work)) throw std::runtime_error("no replicas");
  };
  EXPECT_THAT(RunWith(std::move(fault), 4, 2).message(), HasSubstr("no replicas"));
}

TEST(Failure, AllReducesThatDoNotMatchAreNamed) {
  Fault fault;
  fault.rank = 2;
  fault.on_collective = [](PreparedOp& op) {
    if (auto* reduce = std::get_if<ReduceInPlace>(&op.work)) reduce->numel -= 1;
  };
  EXPECT_THAT(RunWith(std::move(fault), 4, 2).message(),
              testing::AllOf(HasSubstr("collective mismatch"), HasSubstr("rank 2"),
                             HasSubstr("a mean of"), HasSubstr("for all at")));
}

TEST(Failure, FactorsThatDoNotMatchAreNamed) {
  Fault fault;
  fault.on_collective = [](PreparedOp& op) {
    if (auto* reduce = std::get_if<ReduceSlices>(&op.work)) reduce->factor = 0.5;
  };
  EXPECT_THAT(RunWith(std::move(fault)).message(), HasSubstr("times 0.5"));
}

TEST(Failure, ARankThatLeavesIsNotWaitedFor) {
  FailureFlag failure;
  CpuWorld world(2, {{2, 1}}, failure);
  PreparedOp op;
  op.group = 0;
  op.work = GatherSlices{0, 4, DType::kFp32};
  op.place = "here";
  Launch launch;
  launch.op = &op;
  const CpuWorld::Seat seat = world.Find(0, 0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    world.Find(1, 0).meeting->Leave(1);
  });
  EXPECT_TRUE(seat.meeting->Begin(seat.member, launch).empty());
  other.join();
  EXPECT_EQ(failure.Cause().message(),
            "rank 1 ended while rank 0 waits for it in a gather of 4 fp32 a rank at here");
}

TEST(Failure, TheFirstCauseIsKept) {
  FailureFlag failure;
  EXPECT_FALSE(failure.IsRaised());
  failure.Raise(Unavailable("first"));
  failure.Raise(Internal("second"));
  EXPECT_TRUE(failure.IsRaised());
  EXPECT_EQ(failure.Cause().message(), "first");
}

}  // namespace
}  // namespace foreshard::exec
