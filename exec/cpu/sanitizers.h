// What the executor tells the sanitizers. BLAS code is not instrumented, so each op's reads and
// writes are announced by buffer; and the machinery that hands work to threads is hidden, so that
// only what the plan orders counts as order: a missing wait is then a data race in every schedule.
// Nothing of this exists in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_THREAD__)
#define FORESHARD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FORESHARD_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FORESHARD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FORESHARD_ASAN 1
#endif
#endif

#ifdef FORESHARD_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#ifdef FORESHARD_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace foreshard::exec::sanitizers {

// Everything is many times slower then.
#if defined(FORESHARD_TSAN) || defined(FORESHARD_ASAN)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

#ifdef FORESHARD_TSAN
inline void Acquire(const void* p) { __tsan_acquire(const_cast<void*>(p)); }
inline void Release(const void* p) { __tsan_release(const_cast<void*>(p)); }
inline void AnnounceRead(const void* p, size_t size) {
  __tsan_read_range(const_cast<void*>(p), size);
}
inline void AnnounceWrite(void* p, size_t size) { __tsan_write_range(p, size); }

// While one lives, the thread's locks order nothing and its accesses are not looked at.
class Hidden {
 public:
  Hidden() {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Hidden() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};
#else
inline void Acquire(const void*) {}
inline void Release(const void*) {}
class Hidden {
 public:
  Hidden() {}
  ~Hidden() {}
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};
#endif

// Bytes that belong to nobody until they are given out again.
#ifdef FORESHARD_ASAN
inline void Forbid(void* p, size_t size) { __asan_poison_memory_region(p, size); }
inline void Permit(void* p, size_t size) { __asan_unpoison_memory_region(p, size); }
// An access that the compiler did not see: ends the program when the bytes are forbidden.
inline void AnnounceRead(const void* p, size_t size) {
  if (void* bad = __asan_region_is_poisoned(const_cast<void*>(p), size)) {
    static_cast<void>(*static_cast<volatile char*>(bad));
  }
}
inline void AnnounceWrite(void* p, size_t size) { AnnounceRead(p, size); }
#else
inline void Forbid(void*, size_t) {}
inline void Permit(void*, size_t) {}
#ifndef FORESHARD_TSAN
inline void AnnounceRead(const void*, size_t) {}
inline void AnnounceWrite(void*, size_t) {}
#endif
#endif

}  // namespace foreshard::exec::sanitizers
