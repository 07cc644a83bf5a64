// The host goes on only when the record of an event that an op waits for has come: not earlier, and
// without waiting for later ones; in the step of the record or in one after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "exec/cpu/backend.h"
#include "exec/cpu/device.h"
#include "exec/prepare_parts.h"
#include "exec/run.h"
#include "tests/small_world/world.h"

namespace foreshard::exec {
namespace {

using namespace std::chrono_literals;

// What rank 0 has done with two ops: one before the record, one that waits for it.
struct Watched {
  std::vector<std::string> recorded;  // places of the first, in all segments
  std::string waiting;                // place of the second
  std::vector<int> ended_at_issue;    // how often the first had ended when the second was issued
  std::atomic<int> ended{0};
  std::atomic<int> issued{0};
  // How often the second is issued before the n-th run of the first may end: what it does not wait
  // for.
  std::function<int(int)> issued_before = [](int) { return 0; };
  std::atomic<bool> gave_up{false};
};

class WatchedDevice final : public CpuDevice {
 public:
  WatchedDevice(const PreparedPlan& plan, int streams, FailureFlag& failure, Watched& watched)
      : CpuDevice(plan, streams, true, failure), watched_(watched) {}
  void Run(int stream, const Launch& launch) override {
    if (launch.op->place == watched_.waiting) {
      watched_.ended_at_issue.push_back(watched_.ended);
      ++watched_.issued;
    }
    CpuDevice::Run(stream, launch);
    if (std::ranges::count(watched_.recorded, launch.op->place) > 0) {
      Push(stream, [&watched = watched_] { EndLate(watched); });
    }
  }

 private:
  static void EndLate(Watched& watched) {
    std::this_thread::sleep_for(20ms);
    const int issues = watched.issued_before(watched.ended + 1);
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (watched.issued < issues && !watched.gave_up) {
      std::this_thread::sleep_for(1ms);
      if (std::chrono::steady_clock::now() > end) watched.gave_up = true;
    }
    ++watched.ended;
  }

  Watched& watched_;
};

class WatchedBackend final : public Backend {
 public:
  WatchedBackend(const pb::Plan& plan, FailureFlag& failure, Watched& watched)
      : inner_(plan, true, failure), failure_(failure), watched_(watched) {}
  std::unique_ptr<Device> MakeDevice(int rank, const PreparedPlan& plan, int streams) override {
    if (rank != 0) return inner_.MakeDevice(rank, plan, streams);
    return std::make_unique<WatchedDevice>(plan, streams, failure_, watched_);
  }
  std::unique_ptr<Communicator> MakeCommunicator(int rank) override {
    return inner_.MakeCommunicator(rank);
  }

 private:
  CpuBackend inner_;
  FailureFlag& failure_;
  Watched& watched_;
};

int Find(const pb::Segment& segment, bool (pb::Op::*is_it)() const, int from = 0) {
  for (int i = from; i < segment.ops_size(); ++i) {
    if ((segment.ops(i).*is_it)()) return i;
  }
  CHECK(false) << "no such op";
  return 0;
}

// Where in a step the host waits: before the record of the same step, or after it.
enum class Where { kBefore, kAfter };

struct Case {
  const char* name;
  Where where;
  int back;
  int without = 1;  // steps before the first that waits
  int steps = 5;
  // Records of steps before `step` or of it that have come when its op is issued.
  int Awaited(int step) const { return step - back + (where == Where::kAfter ? 1 : 0); }
};

pb::Plan TwoBlocks() {
  SmallCase c;
  c.blocks = 2;
  c.request.world_size = 2;
  c.request.seq = 4;
  return PlanOfCase(c).value();
}

// The event is recorded once a step, at its first reshard. Steps after the first `without` wait.
pb::Plan PlanThatWaits(const Case& c, Watched& watched) {
  pb::Plan plan = TwoBlocks();
  pb::Segment& step = *plan.mutable_segments(0);
  plan.add_events()->set_name("freed");
  const int record = Find(step, &pb::Op::has_reshard);
  step.mutable_ops(record)->set_record(0);
  step.mutable_ops(record)->set_record_stream(0);
  const int recorded = Find(step, &pb::Op::has_compute);
  const int waiting = Find(step, &pb::Op::has_compute, c.where == Where::kAfter ? record : 0);
  pb::Segment waits = step;
  waits.set_name("waits");
  pb::EventWait& wait = *waits.mutable_ops(waiting)->add_event_waits();
  wait.set_event(0);
  wait.set_back(c.back);
  watched.recorded = {PlaceOf(plan, step, recorded), PlaceOf(plan, waits, recorded)};
  watched.waiting = PlaceOf(plan, waits, waiting);
  *plan.add_segments() = waits;
  const pb::Program steady = plan.programs(1);
  for (int i = 1; i < c.without; ++i) *plan.add_programs() = steady;
  plan.mutable_programs(1)->Swap(plan.add_programs());
  plan.mutable_programs()->DeleteSubrange(1, 1);
  plan.mutable_programs()->rbegin()->mutable_uses(0)->set_segment(plan.segments_size() - 1);
  return plan;
}

Status RunPlan(const pb::Plan& plan, int steps, Watched& watched) {
  const auto weights = WeightsFromSeed(plan, 1).value();
  const auto data = SyntheticData(plan, 1).value();
  FailureFlag failure;
  WatchedBackend backend(plan, failure, watched);
  RunOptions options;
  options.steps = steps;
  return RunOn(backend, failure, plan, *weights, *data, options).status();
}

class Events : public testing::TestWithParam<Case> {};

TEST_P(Events, TheHostWaitsForTheRecordAndNotForLaterOnes) {
  const Case& c = GetParam();
  Watched watched;
  const pb::Plan plan = PlanThatWaits(c, watched);
  const int waits = c.steps - c.without;
  // The host is a step ahead at most, so that later records than the next may be waited for anyway.
  if (c.back == 1) {
    const int later = c.where == Where::kAfter ? 0 : 1;
    watched.issued_before = [&c, waits, later](int run) {
      return std::min(run + later - c.without, waits);
    };
  }
  const Status status = RunPlan(plan, c.steps, watched);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(watched.gave_up) << "waits for a later record";
  ASSERT_EQ(static_cast<int>(watched.ended_at_issue.size()), waits);
  for (int i = 0; i < waits; ++i) {
    EXPECT_GE(watched.ended_at_issue[i], c.Awaited(c.without + i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Events,
                         testing::Values(Case{"OfThisStep", Where::kAfter, 0},
                                         Case{"OfThisStepsPredecessor", Where::kAfter, 1},
                                         Case{"OfTheLastStep", Where::kBefore, 0},
                                         Case{"OfTheOneBeforeIt", Where::kBefore, 1, 2},
                                         Case{"OfThreeStepsBefore", Where::kBefore, 3, 4, 8}),
                         [](const auto& c) { return std::string(c.param.name); });

// Without the wait the host does not care: that the ones above can fail.
TEST(Events, WithoutAWaitTheHostGoesOn) {
  const Case c{"", Where::kAfter, 0};
  Watched watched;
  pb::Plan plan = PlanThatWaits(c, watched);
  for (pb::Op& op : *plan.mutable_segments()->rbegin()->mutable_ops()) op.clear_event_waits();
  watched.issued_before = [&](int run) { return run - c.without; };
  const Status status = RunPlan(plan, c.steps, watched);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(watched.gave_up);
}

TEST(Events, AWaitForARecordThatIsNotThereEndsTheRun) {
  Watched watched;
  const pb::Plan plan = PlanThatWaits({"", Where::kBefore, 1}, watched);
  EXPECT_THAT(RunPlan(plan, 3, watched).message(),
              testing::HasSubstr("waits for record 1 back of event 0, which has been recorded 1 "
                                 "times"));
}

}  // namespace
}  // namespace foreshard::exec
