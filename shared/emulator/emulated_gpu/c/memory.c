// Memory of the emulated devices and of the host: addresses are handed out, bytes are counted.
#define _GNU_SOURCE
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- Addresses: a range of this process that takes memory of the host only where it is written.
#define GRAIN (2 * MIB) // of physical memory on NVIDIA's GPUs
static uintptr_t first_address, last_address;
static size_t used[DEVICES];

// Allocations lie in chunks, which are multiples of CHUNK, as in traces of GPUs under Linux. An
// allocation takes the first gap in a chunk that is large enough, in the newest chunk that has one.
// Without one, a new chunk takes the highest free addresses or, where addresses ascend, those above
// all others. An empty chunk is removed. The order matters, since of free blocks of the same size
// PyTorch takes the one with the lowest address, which here is mostly the newest.
#define CHUNK (32 * MIB)
typedef struct block {
  uintptr_t at;
  size_t size;
  struct block *above; // the next one in this chunk
} block;
typedef struct chunk {
  uintptr_t at;
  size_t size;
  int on;
  block *lowest;
  struct chunk *older;
  struct chunk *below; // in the order of addresses
} chunk;
static chunk *newest, *highest;

static size_t rounded(size_t bytes) {
  size_t most = SIZE_MAX / CHUNK * CHUNK; // above, the sum would begin at 0 again
  return bytes > most ? most : (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static void reserve(void) {
  // Where addresses are limited (ulimit -v), a smaller range has to do.
  for (size_t span = (size_t)1 << 45; span >= (size_t)1 << 36; span /= 2) {
    void *at = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED)
      continue;
    first_address = rounded((uintptr_t)at);
    last_address = ((uintptr_t)at + span) / CHUNK * CHUNK;
    return;
  }
  fprintf(stderr, "emulated-gpu: no addresses for the GPU; ulimit -v has to be above 70 GB\n");
}

static pthread_once_t reserved = PTHREAD_ONCE_INIT;

bool memory_on_device(const void *pointer) {
  return (uintptr_t)pointer >= first_address && (uintptr_t)pointer < last_address;
}

int memory_device(const void *pointer) {
  int on = device;
  pthread_mutex_lock(&lock);
  for (chunk *c = newest; c; c = c->older)
    if ((uintptr_t)pointer - c->at < c->size && c->on >= 0)
      on = c->on;
  pthread_mutex_unlock(&lock);
  return on;
}

// Put an allocation into the first gap of a chunk; return NULL if none is large enough.
static block *insert(chunk *in, size_t size) {
  block **link = &in->lowest;
  uintptr_t at = in->at;
  while (*link && (*link)->at - at < size) {
    at = (*link)->at + (*link)->size;
    link = &(*link)->above;
  }
  if (in->at + in->size - at < size)
    return NULL;
  block *new = object_new(sizeof *new);
  *new = (block){at, size, *link};
  return *link = new;
}

// Make a chunk at the highest addresses that are free, or above all; return NULL if there are none.
static chunk *chunk_new(size_t size, int on) {
  chunk **link = &highest;
  uintptr_t end = last_address;
  uintptr_t above = highest ? highest->at + highest->size : first_address;
  if (card.ascending && end - above >= size)
    end = above + size;
  while (*link && end - ((*link)->at + (*link)->size) < size) {
    end = (*link)->at;
    link = &(*link)->below;
  }
  if (end - first_address < size)
    return NULL;
  chunk *new = object_new(sizeof *new);
  *new = (chunk){end - size, size, on, NULL, newest, *link};
  return newest = *link = new;
}

// Hand out addresses of a device, or for -1 some that no device counts: of a driver's reservation,
// to which memory is added later. The lock is held.
static block *take(size_t size, int on) {
  block *new = NULL;
  for (chunk *c = newest; c && !new; c = c->older)
    if (c->on == on)
      new = insert(c, size);
  if (!new) {
    chunk *c = chunk_new((size + CHUNK - 1) / CHUNK * CHUNK, on);
    new = c ? insert(c, size) : NULL;
  }
  return new;
}

// Find the chunk of an allocation, and the link to it; return NULL if there is none.
static chunk *find(uintptr_t at, block ***link) {
  chunk *c = highest;
  while (c && c->at > at)
    c = c->below;
  if (!c)
    return NULL;
  for (*link = &c->lowest; **link && (**link)->at != at;)
    *link = &(**link)->above;
  return **link ? c : NULL;
}

// Take an allocation out of its chunk, and remove the chunk if it was the last one.
static void drop(chunk *of, block **link) {
  block *old = *link;
  // The host gets its pages back; the next allocation at these addresses finds zeros.
  madvise((void *)old->at, old->size, MADV_DONTNEED);
  *link = old->above;
  free(old);
  if (of->lowest)
    return;
  chunk **at = &newest;
  while (*at != of)
    at = &(*at)->older;
  *at = of->older;
  at = &highest;
  while (*at != of)
    at = &(*at)->below;
  *at = of->below;
  free(of);
}

// The context may be larger than the card, and sizes are unsigned: a difference would be huge.
size_t memory_free(int on) {
  size_t taken = card.context + used[on];
  return taken < card.bytes ? card.bytes - taken : 0;
}

static bool is_counted; // the process writes a report of its memory at its end

ENTRY void emulator_counted(void) { is_counted = true; }

// Leave a file for launch.py that says: this process used a GPU, and nothing counts how much.
static void leave_mark(void) {
  static pid_t marked; // a fork leaves its own
  const char *folder = getenv("EMULATED_REPORTS");
  if (is_counted || !folder || marked == getpid())
    return;
  marked = getpid();
  char path[4096];
  snprintf(path, sizeof path, "%s/%d.uncounted", folder, marked);
  FILE *file = fopen(path, "w");
  if (file)
    fclose(file);
}

bool memory_take(int on, size_t bytes) {
  leave_mark();
  if (bytes > memory_free(on))
    return false;
  used[on] += bytes;
  return true;
}

void memory_give(int on, size_t bytes) { used[on] -= bytes; }

size_t memory_used(int on) { return used[on]; }

uintptr_t memory_addresses(size_t bytes) {
  pthread_once(&reserved, reserve);
  pthread_mutex_lock(&lock);
  block *new = take(rounded(bytes ? bytes : 1), -1);
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
    new = take(size, device);
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
  block **link;
  chunk *of = find((uintptr_t)pointer, &link);
  if (of) {
    if (of->on >= 0)
      memory_give(of->on, (*link)->size);
    drop(of, link);
  }
  pthread_mutex_unlock(&lock);
  return of ? cudaSuccess : cudaErrorInvalidValue;
}

ENTRY cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  pthread_mutex_lock(&lock);
  *total = card.bytes;
  *free_bytes = memory_free(device);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

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
  block **link;
  chunk *of = find((uintptr_t)pointer, &link);
  if (of && of->on >= 0) { // it may have come from cudaMalloc(), and was not counted then
    uint64_t *in = &pool_used[of->on];
    *in -= (*link)->size < *in ? (*link)->size : *in;
  }
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
