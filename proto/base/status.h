// Status and StatusOr: how anything that a file, a machine or a network can cause is reported.
// Bugs are CHECKs (proto/base/check.h); answers such as "does not fit" are values, not errors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/base/check.h"

namespace foreshard {

// What went wrong, in the granularity a caller can act on. tools/ maps each to an exit code.
enum class StatusCode {
  kOk,
  kInvalidArgument,   // a flag or option asks for something impossible
  kInvalidInput,      // a file's content is not what it should be
  kInvalidPlan,       // a plan breaks a rule of proto/plan.proto
  kNotFound,          // a file or a catalogue name does not exist
  kUnavailable,       // a device, peer or library is missing
  kDeadlineExceeded,  // something did not answer in time
  kInternal,          // a failure that no input explains
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // One line for people: what was found, what was expected, where, what to do.
  const std::string& message() const { return message_; }

  // The same error with `where: ` put before its message; an OK status stays as it is.
  Status At(std::string_view where) const {
    if (ok()) return *this;
    return Status(code_, std::string(where) + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status InvalidInput(std::string m) { return {StatusCode::kInvalidInput, std::move(m)}; }
inline Status InvalidPlan(std::string m) { return {StatusCode::kInvalidPlan, std::move(m)}; }
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status)
      : status_(std::move(status)) {  // NOLINT: implicit, so that errors pass on
    CHECK(!status_.ok()) << "StatusOr built from an OK status without a value";
  }
  StatusOr(T value)
      : value_(std::move(value)) {}  // NOLINT: implicit, so that values can be returned

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok()
  const T& value() const& {
    CHECK(ok()) << status_.message();
    return *value_;
  }
  T& value() & {
    CHECK(ok()) << status_.message();
    return *value_;
  }
  T&& value() && {
    CHECK(ok()) << status_.message();
    return std::move(*value_);
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define FORESHARD_CONCAT_INNER(a, b) a##b
#define FORESHARD_CONCAT(a, b) FORESHARD_CONCAT_INNER(a, b)

// Returns the status of `expr` from the current function unless it is OK.
#define RETURN_IF_ERROR(expr)                                  \
  do {                                                         \
    if (::foreshard::Status status_ = (expr); !status_.ok()) { \
      return status_;                                          \
    }                                                          \
  } while (false)

// Declares or assigns `lhs` from the value of `expr`, or returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(FORESHARD_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) return tmp.status();         \
  lhs = std::move(tmp).value()

}  // namespace foreshard
