// The host: files and memory that are mapped, but not touched, may be larger than the machine.
// https://man7.org/linux/man-pages/man2/mmap.2.html
#define _GNU_SOURCE
#include "emulator.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// Weights of a large model are mapped from a file without data. Linux would refuse a mapping that
// is larger than the machine's memory, since the program could write to each page.
ENTRY void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (flags & MAP_PRIVATE && bytes > 1024 * MIB)
    flags |= MAP_NORESERVE;
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

ENTRY void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(at, bytes, protection, flags, file, offset);
}

// Memory that this process has not touched has no pages: it is all zeros, or what a file has. So
// Linux knows which large tensors on the host have values, and no list of them is needed.
// https://docs.kernel.org/admin-guide/mm/pagemap.html
ENTRY bool emulator_untouched(const void *start, size_t bytes) {
  const uint64_t present = (uint64_t)3 << 62; // in memory, or swapped out
  const size_t around = 16; // pages at the ends: neighbors share them, or were read with them
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t at = (uintptr_t)start / page + around;
  uintptr_t end = ((uintptr_t)start + bytes) / page;
  end -= around < end ? around : end;
  int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  bool untouched = map >= 0;
  while (untouched && at < end) {
    uint64_t entries[4096];
    size_t wanted = end - at < 4096 ? end - at : 4096;
    ssize_t got = pread(map, entries, wanted * sizeof *entries, (off_t)(at * sizeof *entries));
    untouched = got > 0;
    for (ssize_t i = 0; i < got / (ssize_t)sizeof *entries; i++)
      untouched = untouched && !(entries[i] & present);
    at += (size_t)(got > 0 ? got : 0) / sizeof *entries;
  }
  if (map >= 0)
    close(map);
  return untouched;
}

// Give the pages of a tensor on the host back to Linux, before a filling that does not happen.
// https://man7.org/linux/man-pages/man2/madvise.2.html
ENTRY void emulator_forget(const void *start, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t at = ((uintptr_t)start + page - 1) / page * page;
  uintptr_t end = ((uintptr_t)start + bytes) / page * page;
  if (at < end)
    madvise((void *)at, end - at, MADV_DONTNEED);
}

// Each large allocation gets a mapping of its own, since reused pages would count as touched.
// https://man7.org/linux/man-pages/man3/mallopt.3.html
__attribute__((constructor)) static void host_begin(void) { mallopt(M_MMAP_THRESHOLD, MIB); }

// When Python finalizes, it ends threads that wait for its lock. Where such a thread has C++
// frames, as the backward pass has below a kernel in Python, ending it aborts the process. Newer
// versions of Python let these threads wait forever, and so does this function.
// https://docs.python.org/3/c-api/init.html#cautions-regarding-runtime-finalization
ENTRY __attribute__((noreturn)) void pthread_exit(void *value) {
  Dl_info caller = {0};
  dladdr(__builtin_return_address(0), &caller);
  while (caller.dli_fname && strstr(caller.dli_fname, "python"))
    pause();
  void (*original)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "pthread_exit");
  original(value);
  __builtin_unreachable();
}
