// clone3 that shares memory with a suspended parent (as vfork does) and can put the child into a cgroup at birth.
// Neither glibc's vfork nor posix_spawn can do the latter, and moving a process afterwards costs some 10 ms (the
// kernel waits for an RCU grace period).
#pragma once

#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dtrain::shim {

#if defined(__x86_64__) || defined(__aarch64__)
inline constexpr uint64_t kVforkFlags = CLONE_VM | CLONE_VFORK;
#else
inline constexpr uint64_t kVforkFlags = CLONE_VFORK;  // slower, and the child must report through shared memory
#endif

// Runs child(context) in the new process; returns its pid here once it has executed a program or exited, or -errno.
// `child` must not return and may use only system calls: it runs on the caller's stack, below this frame. Nothing here
// may be kept in a stack slot across the call, hence the size of this function and noinline.
__attribute__((noinline, no_sanitize("address", "thread", "undefined"))) inline long vfork_clone(clone_args* args, void (*child)(void*),
                                                                                                 void* context) {
  long result;
#if defined(__x86_64__)
  asm volatile("syscall" : "=a"(result) : "0"(static_cast<long>(SYS_clone3)), "D"(args), "S"(sizeof(*args)) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long number asm("x8") = SYS_clone3;
  register long first asm("x0") = reinterpret_cast<long>(args);
  register long second asm("x1") = sizeof(*args);
  asm volatile("svc #0" : "+r"(first) : "r"(number), "r"(second) : "memory");
  result = first;
#else
  result = syscall(SYS_clone3, args, sizeof(*args));
  if (result < 0) result = -errno;
#endif
  if (result == 0) {
    child(context);
    __builtin_trap();
  }
  return result;
}

}  // namespace dtrain::shim
