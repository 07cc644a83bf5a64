#include "exec/cpu/stream.h"

#include <exception>
#include <string>
#include <utility>

#include "exec/cpu/sanitizers.h"

namespace foreshard::exec {

using sanitizers::Hidden;

void CpuEvent::Set() {
  sanitizers::Release(this);
  const Hidden hidden;
  const std::scoped_lock lock(mutex_);
  set_ = true;
  changed_.notify_all();
}

bool CpuEvent::Wait() {
  {
    const Hidden hidden;
    std::unique_lock lock(mutex_);
    while (!set_) {
      if (failure_.IsRaised()) return false;
      changed_.wait_for(lock, kFailurePoll);
    }
  }
  sanitizers::Acquire(this);
  return true;
}

bool CpuEvent::HasCome() const {
  const Hidden hidden;
  const std::scoped_lock lock(mutex_);
  return set_;
}

CpuStream::CpuStream(FailureFlag& failure) : failure_(failure), worker_([this] { Work(); }) {}

CpuStream::~CpuStream() {
  {
    const Hidden hidden;
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  worker_.join();
}

void CpuStream::Push(Task task) {
  auto node = std::make_unique<Task>(std::move(task));
  sanitizers::Release(node.get());
  const Hidden hidden;
  const std::scoped_lock lock(mutex_);
  tasks_.push_back(std::move(node));
  changed_.notify_one();
}

std::unique_ptr<CpuStream::Task> CpuStream::Pop() {
  std::unique_ptr<Task> node;
  {
    const Hidden hidden;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !tasks_.empty() || closed_; });
    if (tasks_.empty()) return nullptr;
    node = std::move(tasks_.front());
    tasks_.pop_front();
  }
  sanitizers::Acquire(node.get());
  return node;
}

void CpuStream::Work() {
  while (const std::unique_ptr<Task> task = Pop()) {
    if (failure_.IsRaised()) continue;
    try {
      (*task)();
    } catch (const std::exception& e) {
      failure_.Raise(Internal(std::string("a stream's work ended with: ") + e.what()));
    } catch (...) {
      failure_.Raise(Internal("a stream's work ended with an exception of unknown type"));
    }
  }
}

}  // namespace foreshard::exec
