// Memory of the emulated devices and of the host: addresses are handed out, bytes are counted.
#define _GNU_SOURCE
#include "emulator.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// ---- Addresses: a range that no memory of the host stands behind until somebody writes there.
#define GRAIN (2 * MIB) // of physical memory on NVIDIA's GPUs
static uintptr_t first_address, last_address;
static size_t used[DEVICES], most_used[DEVICES];

// Allocations in the order of their addresses, in a ring that begins and ends at `blocks`.
typedef struct block {
  uintptr_t at;
  size_t size;
  int on;
  struct block *before, *after;
} block;
static block blocks = {.before = &blocks, .after = &blocks};
static block *latest = &blocks; // the next allocation goes behind it, as long as there is room

static size_t rounded(size_t bytes) { return (bytes + GRAIN - 1) / GRAIN * GRAIN; }

static void reserve(void) {
  // Where addresses are limited (ulimit -v), a smaller range has to do.
  for (size_t span = (size_t)1 << 45; span >= (size_t)1 << 36; span /= 2) {
    void *at = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED)
      continue;
    first_address = rounded((uintptr_t)at);
    last_address = (uintptr_t)at + span;
    return;
  }
}

static pthread_once_t reserved = PTHREAD_ONCE_INIT;

bool memory_on_device(const void *pointer) {
  return (uintptr_t)pointer >= first_address && (uintptr_t)pointer < last_address;
}

// Find room behind a block, in front of the next one. The lock is held.
static bool room(const block *behind, size_t size, uintptr_t *at) {
  *at = behind == &blocks ? first_address : behind->at + behind->size;
  uintptr_t end = behind->after == &blocks ? last_address : behind->after->at;
  return end > *at && end - *at >= size;
}

// Put an allocation of a size behind the latest one, or into the first gap. The lock is held.
static block *insert(size_t size, int on) {
  uintptr_t at;
  block *behind = latest;
  if (!room(behind, size, &at)) {
    behind = &blocks;
    while (!room(behind, size, &at)) {
      behind = behind->after;
      if (behind == &blocks)
        return NULL;
    }
  }
  block *new = object_new(sizeof *new);
  *new = (block){at, size, on, behind, behind->after};
  behind->after->before = new;
  behind->after = new;
  return latest = new;
}

static void delete(block *old) {
  madvise((void *)old->at, old->size, MADV_DONTNEED);
  old->before->after = old->after;
  old->after->before = old->before;
  if (latest == old)
    latest = old->before;
  free(old);
}

static block *find(uintptr_t at) {
  for (block *b = blocks.before; b != &blocks; b = b->before)
    if (b->at == at)
      return b;
  return NULL;
}

bool memory_take(int on, size_t bytes) {
  if (bytes > card.bytes - card.context - used[on])
    return false;
  used[on] += bytes;
  if (used[on] > most_used[on])
    most_used[on] = used[on];
  return true;
}

void memory_give(int on, size_t bytes) { used[on] -= bytes; }

size_t memory_used(int on) { return used[on]; }

uintptr_t memory_addresses(size_t bytes) {
  pthread_once(&reserved, reserve);
  pthread_mutex_lock(&lock);
  block *new = insert(rounded(bytes ? bytes : 1), -1);
  pthread_mutex_unlock(&lock);
  return new ? new->at : 0;
}

// ---- Device memory: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html
ENTRY cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  pthread_once(&reserved, reserve);
  size_t size = rounded(bytes ? bytes : 1);
  block *new = NULL;
  pthread_mutex_lock(&lock);
  if (memory_take(device, size)) {
    new = insert(size, device);
    if (!new)
      memory_give(device, size);
  }
  pthread_mutex_unlock(&lock);
  *pointer = new ? (void *)new->at : NULL;
  return new ? cudaSuccess : cudaErrorMemoryAllocation;
}

ENTRY cudaError_t cudaFree(void *pointer) {
  if (!pointer)
    return cudaSuccess;
  pthread_mutex_lock(&lock);
  block *old = find((uintptr_t)pointer);
  if (old) {
    if (old->on >= 0)
      memory_give(old->on, old->size);
    delete(old);
  }
  pthread_mutex_unlock(&lock);
  return old ? cudaSuccess : cudaErrorInvalidValue;
}

ENTRY cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  pthread_mutex_lock(&lock);
  *total = card.bytes;
  *free_bytes = card.bytes - card.context - used[device];
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

// The most that a device has had in use, in bytes.
ENTRY size_t emulator_most_used(int on) { return on >= 0 && on < DEVICES ? most_used[on] : 0; }

// ---- Memory pools, for PyTorch's backend cudaMallocAsync:
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY__POOLS.html
static uint64_t pool_used[DEVICES], pool_most[DEVICES];

ENTRY cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
  cudaError_t error = cudaMalloc(pointer, bytes);
  if (!error) {
    pthread_mutex_lock(&lock);
    pool_used[device] += rounded(bytes ? bytes : 1);
    if (pool_used[device] > pool_most[device])
      pool_most[device] = pool_used[device];
    pthread_mutex_unlock(&lock);
  }
  return error;
}

ENTRY cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  block *old = find((uintptr_t)pointer);
  if (old && old->on >= 0)
    pool_used[old->on] -= old->size;
  pthread_mutex_unlock(&lock);
  return cudaFree(pointer);
}

ENTRY cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int of) {
  *pool = (cudaMemPool_t)&pool_used[of];
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                          void *value) {
  ptrdiff_t of = (uint64_t *)pool - pool_used;
  bool is_most =
      attribute == cudaMemPoolAttrReservedMemHigh || attribute == cudaMemPoolAttrUsedMemHigh;
  *(uint64_t *)value = is_most ? pool_most[of] : pool_used[of];
  return cudaSuccess;
}

// Setting a maximum to 0 lets it begin anew.
ENTRY cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                          void *value) {
  ptrdiff_t of = (uint64_t *)pool - pool_used;
  if (attribute == cudaMemPoolAttrReservedMemHigh || attribute == cudaMemPoolAttrUsedMemHigh)
    pool_most[of] = pool_used[of];
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access,
                                       size_t count) {
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) { return cudaSuccess; }

// ---- Host memory that the device can reach: pinned, registered or managed.
typedef struct range {
  uintptr_t at;
  size_t size;
  enum cudaMemoryType type;
  bool mapped; // here, so it is unmapped here
  struct range *next;
} range;
static range *ranges;

static void remember(void *pointer, size_t bytes, enum cudaMemoryType type, bool mapped) {
  range *new = object_new(sizeof *new);
  pthread_mutex_lock(&lock);
  *new = (range){(uintptr_t)pointer, bytes, type, mapped, ranges};
  ranges = new;
  pthread_mutex_unlock(&lock);
}

static enum cudaMemoryType type_of(const void *pointer) {
  enum cudaMemoryType type = cudaMemoryTypeUnregistered;
  pthread_mutex_lock(&lock);
  for (range *r = ranges; r; r = r->next)
    if ((uintptr_t)pointer - r->at < r->size)
      type = r->type;
  pthread_mutex_unlock(&lock);
  return type;
}

static cudaError_t map(void **pointer, size_t bytes, enum cudaMemoryType type) {
  bytes = bytes ? bytes : 1;
  *pointer =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*pointer == MAP_FAILED)
    return cudaErrorMemoryAllocation;
  remember(*pointer, bytes, type, true);
  return cudaSuccess;
}

ENTRY cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  return map(pointer, bytes, cudaMemoryTypeHost);
}

ENTRY cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  return map(pointer, bytes, cudaMemoryTypeHost);
}

ENTRY cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) {
  return map(pointer, bytes, cudaMemoryTypeManaged);
}

ENTRY cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  remember(pointer, bytes, cudaMemoryTypeHost, false);
  return cudaSuccess;
}

ENTRY cudaError_t cudaHostUnregister(void *pointer) {
  pthread_mutex_lock(&lock);
  range **link = &ranges;
  while (*link && (*link)->at != (uintptr_t)pointer)
    link = &(*link)->next;
  range *old = *link;
  if (old)
    *link = old->next;
  pthread_mutex_unlock(&lock);
  if (!old)
    return cudaErrorInvalidValue;
  if (old->mapped)
    munmap(pointer, old->size);
  free(old);
  return cudaSuccess;
}

ENTRY cudaError_t cudaFreeHost(void *pointer) {
  return pointer ? cudaHostUnregister(pointer) : cudaSuccess;
}

ENTRY cudaError_t cudaHostGetDevicePointer(void **on_device, void *pointer, unsigned flags) {
  *on_device = pointer;
  return cudaSuccess;
}

ENTRY cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *pointer) {
  memset(a, 0, sizeof *a);
  a->type = memory_on_device(pointer) ? cudaMemoryTypeDevice : type_of(pointer);
  a->device = a->type == cudaMemoryTypeUnregistered ? cudaInvalidDeviceId : device;
  if (a->type == cudaMemoryTypeDevice) {
    pthread_mutex_lock(&lock);
    for (block *b = blocks.after; b != &blocks; b = b->after)
      if ((uintptr_t)pointer - b->at < b->size && b->on >= 0)
        a->device = b->on;
    pthread_mutex_unlock(&lock);
  }
  if (a->type != cudaMemoryTypeUnregistered)
    a->devicePointer = (void *)pointer;
  if (a->type != cudaMemoryTypeDevice)
    a->hostPointer = (void *)pointer;
  return cudaSuccess;
}

// ---- Copies. Numbers that an operation reads from the device, such as how many values are not
// zero, come from a list that the process has left: no kernel has counted them.
static _Thread_local int64_t answers[64];
static _Thread_local int answers_left;

ENTRY void emulator_answers(const int64_t *numbers, int count) {
  answers_left = count < 64 ? count : 64;
  for (int i = 0; i < answers_left; i++)
    answers[i] = numbers[answers_left - 1 - i]; // the first one last
}

static bool answer(void *to, const void *from, size_t bytes) {
  bool is_number = bytes == 4 || bytes == 8;
  if (!answers_left || !memory_on_device(from) || memory_on_device(to))
    return false;
  if (answers_left < 0) {
    memset(to, 0, bytes);
    return true;
  }
  if (!is_number)
    return false;
  memcpy(to, &answers[--answers_left], bytes);
  return true;
}

void memory_copy(void *to, const void *from, size_t bytes) {
  bool on_host = !memory_on_device(to) && !memory_on_device(from);
  if ((bytes <= COPIED || on_host) && !answer(to, from, bytes))
    memmove(to, from, bytes);
}

// A copy to memory of the host that is not pinned makes the host wait.
static void copy(void *to, const void *from, size_t bytes, cudaStream_t stream, bool waits) {
  stream_issue(stream);
  bool to_host = !memory_on_device(to) && type_of(to) == cudaMemoryTypeUnregistered;
  if (waits || (card.host_ahead && to_host))
    cudaStreamSynchronize(stream);
  memory_copy(to, from, bytes);
}

ENTRY cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  copy(to, from, bytes, 0, true);
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                  enum cudaMemcpyKind kind, cudaStream_t stream) {
  copy(to, from, bytes, stream, false);
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                      size_t bytes, cudaStream_t stream) {
  copy(to, from, bytes, stream, false);
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                    size_t width, size_t height, enum cudaMemcpyKind kind,
                                    cudaStream_t stream) {
  stream_issue(stream);
  for (size_t row = 0; row < height && width * height <= COPIED; row++)
    memory_copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, 0);
}

ENTRY cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  stream_issue(stream);
  if (bytes <= COPIED)
    memset(to, value, bytes);
  return cudaSuccess;
}

// A variable of a kernel: no kernel reads it.
ENTRY cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
                                     size_t offset, enum cudaMemcpyKind kind) {
  return cudaSuccess;
}

ENTRY cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
  *pointer = (void *)memory_addresses(1);
  return cudaSuccess;
}
