// An in-order queue with a thread that carries it out, and the events that order several of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "exec/device.h"
#include "exec/failure.h"

namespace foreshard::exec {

class CpuEvent final : public Event {
 public:
  explicit CpuEvent(const FailureFlag& failure) : failure_(failure) {}
  void Set();
  // Returns when the event is set (true) or the run has failed (false).
  bool Wait();
  // Whether it is set; orders nothing for the caller.
  bool HasCome() const;

 private:
  const FailureFlag& failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Threads that wait look this often whether the run has failed.
inline constexpr std::chrono::milliseconds kFailurePoll{20};

class CpuStream {
 public:
  using Task = std::function<void()>;

  // Once `failure` is raised, tasks are dropped. A task that throws raises it.
  explicit CpuStream(FailureFlag& failure);
  ~CpuStream();  // carries out what is queued, then ends the thread
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  // Called by one thread.
  void Push(Task task);

 private:
  std::unique_ptr<Task> Pop();  // nullptr when closed and empty
  void Work();

  FailureFlag& failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Task>> tasks_;
  bool closed_ = false;
  std::thread worker_;
};

}  // namespace foreshard::exec
