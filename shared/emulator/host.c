// The host: files and memory that are mapped, but not touched, may be larger than the machine.
// https://man7.org/linux/man-pages/man2/mmap.2.html
#define _GNU_SOURCE
#include "emulator.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// Weights of a large model are mapped from a file that has none; the kernel would refuse that where
// it is larger than the memory, since each page could be written to.
ENTRY void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (flags & MAP_PRIVATE && bytes > 1024 * MIB)
    flags |= MAP_NORESERVE;
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

ENTRY void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(at, bytes, protection, flags, file, offset);
}
