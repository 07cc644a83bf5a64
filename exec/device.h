// What an executor needs from hardware: memory, and work that runs in order on streams. One device
// belongs to one rank, and only the rank's issuing thread calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/prepare.h"
#include "proto/base/status.h"

namespace foreshard::exec {

// A piece of memory that a buffer lives in.
struct Block {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// Where blocks come from and go back to: the memory of the device, or that of the host which the
// device's copies and HOST streams reach, as its work on one stream uses it.
struct Pool {
  int stream = 0;
  bool host = false;
  auto operator<=>(const Pool&) const = default;
};

// When an op ran, in nanoseconds of the device's clock; written by the device.
struct TimeSpan {
  int64_t start = 0;
  int64_t end = 0;
};

// One op with the memory that it uses. What the pointers show is alive until the device is idle.
struct Launch {
  const PreparedOp* op = nullptr;
  std::vector<Block> in;  // as the op lists them
  std::vector<Block> out;
  std::vector<Block> scratch;
  uint64_t random = 0;             // key, where the op draws random numbers
  TimeSpan* span = nullptr;        // where to put the times; nullptr = nobody asks
  double* squared_norm = nullptr;  // who measures gradients adds their squares
};

// A point in a stream's work. The device owns it (BeginStep); nullptr has always come.
class Event {
 public:
  virtual ~Event() = default;
};

class Device {
 public:
  virtual ~Device() = default;

  // ---- memory. Both act at once for the issuing thread, while the bytes belong to work that runs
  // later: a block may hold, until the work that is queued on the pool's stream now has run, what
  // its last owner still uses. Returns kUnavailable when there is no memory left.
  virtual StatusOr<Block> Allocate(int64_t bytes, Pool pool) = 0;
  // `users`: streams beside the pool's own whose work may use the block. Nobody else gets it until
  // all that is queued on them now has run.
  virtual void Free(const Block& block, Pool pool, std::span<const int> users) = 0;
  // Bytes allocated and not freed, on the device and on the host.
  virtual int64_t device_bytes() const = 0;
  virtual int64_t host_bytes() const = 0;

  // ---- work
  virtual void Run(int stream, const Launch& launch) = 0;
  // What `stream` is given from now on waits for the event.
  virtual void Wait(int stream, Event* event) = 0;
  // Done when all that `stream` was given so far is.
  virtual Event* Record(int stream) = 0;
  // Blocks the caller; the failure that keeps the event from coming.
  virtual Status Synchronize(Event* event) = 0;

  // ---- the host's own copies, in stream order. Memory on the host's side lives until the stream
  // has carried them out.
  virtual void Write(int stream, const Block& to, std::span<const std::byte> from) = 0;
  virtual void Read(int stream, const Block& from, std::span<std::byte> to) = 0;

  // Events recorded two calls ago and earlier may be forgotten but for those in `kept`: they have
  // come, and nothing that is queued waits for them.
  virtual void BeginStep(std::span<Event* const> kept) = 0;

  // Nanoseconds on the clock of TimeSpan.
  virtual int64_t Now() const = 0;
};

// What carries data between the ranks' devices. One belongs to one rank; collectives of a group are
// queued in the same order by all its members.
class Communicator {
 public:
  virtual ~Communicator() = default;
  // REQUIRES: the launch's work is a GatherSlices, a ReduceSlices, a ReduceInPlace or a SendToAll.
  virtual void Run(Device& device, int stream, const Launch& launch) = 0;
  // This rank will take part in nothing more; others that wait for it fail.
  virtual void Leave() = 0;
};

// Makes the devices and communicators of a run; lives longer than they do. Called from one thread.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Device> MakeDevice(int rank, const PreparedPlan& plan, int streams) = 0;
  virtual std::unique_ptr<Communicator> MakeCommunicator(int rank) = 0;
};

}  // namespace foreshard::exec
