// CHECK: for what can only be false if this program is wrong. On in every build. No input may reach
// a failing CHECK: errors that files, flags or machines can cause are Statuses
// (proto/base/status.h).
#pragma once

#include <sstream>

namespace foreshard::internal {

// Collects the message of a failed CHECK and ends the program when destroyed.
class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  ~CheckFailure();  // prints and aborts; never returns
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives both branches of the CHECK expression the type void.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace foreshard::internal

#define CHECK(condition)                           \
  (condition) ? (void)0                            \
              : ::foreshard::internal::Voidify() & \
                    ::foreshard::internal::CheckFailure(#condition, __FILE__, __LINE__).stream()
#define CHECK_EQ(a, b) CHECK((a) == (b)) << " (" << (a) << " against " << (b) << ") "
#define CHECK_LT(a, b) CHECK((a) < (b)) << " (" << (a) << " against " << (b) << ") "
#define CHECK_LE(a, b) CHECK((a) <= (b)) << " (" << (a) << " against " << (b) << ") "
#define CHECK_GE(a, b) CHECK((a) >= (b)) << " (" << (a) << " against " << (b) << ") "
