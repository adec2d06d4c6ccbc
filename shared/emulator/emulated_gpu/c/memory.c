// Memory of the emulated devices and of the host: addresses are handed out, bytes are counted.
#define _GNU_SOURCE
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

static size_t rounded(size_t bytes) { return (bytes + GRAIN - 1) / GRAIN * GRAIN; }

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
  fprintf(stderr, "emulator: no addresses for the GPU's memory; ulimit -v has to be above 70 GB\n");
}

static pthread_once_t reserved = PTHREAD_ONCE_INIT;

bool memory_on_device(const void *pointer) {
  return (uintptr_t)pointer >= first_address && (uintptr_t)pointer < last_address;
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

bool memory_take(int on, size_t bytes) {
  if (bytes > card.bytes - card.context - used[on])
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
  *free_bytes = card.bytes - card.context - used[device];
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
  if (of && of->on >= 0)
    pool_used[of->on] -= (*link)->size;
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

// ---- Host memory that the device can reach: pinned, registered or managed. It counts on no
// device, and its type decides whether a copy makes the host wait.
typedef struct range {
  uintptr_t at;
  size_t size;
  enum cudaMemoryType type;
  bool mapped; // by this file, so that it has to unmap it
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
    for (chunk *c = newest; c; c = c->older)
      if ((uintptr_t)pointer - c->at < c->size && c->on >= 0)
        a->device = c->on;
    pthread_mutex_unlock(&lock);
  }
  if (a->type != cudaMemoryTypeUnregistered)
    a->devicePointer = (void *)pointer;
  if (a->type != cudaMemoryTypeDevice)
    a->hostPointer = (void *)pointer;
  return cudaSuccess;
}

// ---- Copies. Some operations read a number from the device, such as how many values are not zero.
// No kernel has counted them, so sizes.py counts, and leaves the numbers here for this thread. A
// negative count stands for any number of zeros, and of truths: what PyTorch's linear algebra reads
// are codes of errors, and whether all values are finite.
static _Thread_local int64_t answers[64];
static _Thread_local int answers_left;

ENTRY void emulator_answers(const int64_t *numbers, int count) {
  answers_left = count < 64 ? count : 64;
  for (int i = 0; i < answers_left; i++)
    answers[i] = numbers[answers_left - 1 - i]; // they are taken from the end
}

int64_t memory_answer(int64_t otherwise) {
  return answers_left > 0 ? answers[--answers_left] : otherwise;
}

// Write the next answer in place of what a copy from the device to the host would bring.
static bool answer(void *to, const void *from, size_t bytes) {
  bool is_number = bytes == 4 || bytes == 8;
  if (!answers_left || !memory_on_device(from) || memory_on_device(to))
    return false;
  if (answers_left < 0) {
    memset(to, bytes == sizeof(bool), bytes);
    return true;
  }
  if (!is_number)
    return false;
  int64_t number = memory_answer(0);
  memcpy(to, &number, bytes);
  return true;
}

void memory_copy(void *to, const void *from, size_t bytes) {
  bool on_host = !memory_on_device(to) && !memory_on_device(from);
  if ((bytes <= COPIED || on_host) && !answer(to, from, bytes))
    memmove(to, from, bytes);
}

// A copy to memory of the host that is not pinned makes the host wait.
static void copy(void *to, const void *from, size_t bytes, cudaStream_t stream, bool waits) {
  stream_work(stream, work_of_copying(to, from, bytes));
  bool to_host = !memory_on_device(to) && type_of(to) == cudaMemoryTypeUnregistered;
  if (waits || to_host)
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
  stream_work(stream, work_of_copying(to, from, width * height));
  for (size_t row = 0; row < height && width * height <= COPIED; row++)
    memory_copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, 0);
}

ENTRY cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  stream_work(stream, work_of_copying(to, to, bytes / 2)); // half: it reads nothing
  if (bytes <= COPIED)
    memset(to, value, bytes);
  return cudaSuccess;
}

// A variable of a kernel, which no kernel reads here.
ENTRY cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
                                     size_t offset, enum cudaMemcpyKind kind) {
  return cudaSuccess;
}

ENTRY cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
  *pointer = (void *)memory_addresses(1);
  return cudaSuccess;
}
