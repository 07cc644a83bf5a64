// Collectives between ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/device.h"
#include "exec/failure.h"

namespace foreshard::exec {

// Where the members of one group meet, one collective after the other.
class Meeting {
 public:
  // `ranks`: the members' numbers in the world, for messages.
  Meeting(std::vector<int> ranks, FailureFlag& failure);

  // Brings this member's launch and returns when all have brought theirs: all of them by member.
  // Empty when the run has failed; raises the failure itself when the launches are not of one kind,
  // size and dtype, or when somebody has left.
  std::vector<const Launch*> Begin(int member, const Launch& launch);
  // Returns when all members are done with each other's memory.
  void End(int member);
  void Leave(int member);

 private:
  bool Gather(int member, bool gives_up);
  bool IsHopeful(int member) const;
  bool AllAgree(int member) const;

  const std::vector<int> ranks_;
  FailureFlag& failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Launch*> launches_;
  std::vector<bool> left_;
  int arrived_ = 0;
  bool is_broken_ = false;
  int64_t round_ = 0;
};

// A group of the plan: `size` ranks, `stride` apart.
struct GroupShape {
  int size = 1;
  int stride = 1;
};

// The meetings of all groups of a world.
class CpuWorld {
 public:
  CpuWorld(int ranks, const std::vector<GroupShape>& groups, FailureFlag& failure);

  struct Seat {
    Meeting* meeting = nullptr;
    int member = 0;
  };
  Seat Find(int rank, int group) const { return seats_[group][rank]; }
  int groups() const { return static_cast<int>(seats_.size()); }

 private:
  std::vector<std::unique_ptr<Meeting>> meetings_;
  std::vector<std::vector<Seat>> seats_;  // by group and rank
};

class CpuCommunicator final : public Communicator {
 public:
  // REQUIRES: `world` outlives it; devices are CpuDevices.
  CpuCommunicator(int rank, CpuWorld& world) : rank_(rank), world_(world) {}
  ~CpuCommunicator() override { Leave(); }
  void Run(Device& device, int stream, const Launch& launch) override;
  void Leave() override;

 private:
  const int rank_;
  CpuWorld& world_;
};

}  // namespace foreshard::exec
