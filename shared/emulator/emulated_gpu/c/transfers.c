// Memory of the host that a device can reach, and copies between the two.
#define _GNU_SOURCE
#include "emulator.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// ---- Pinned, registered or managed memory of the host. It counts on no device, and its type
// decides whether a copy makes the host wait.
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

static bool is_pageable(const void *pointer) {
  return !memory_on_device(pointer) && type_of(pointer) == cudaMemoryTypeUnregistered;
}

work memory_copying(const void *to, const void *from, size_t bytes) {
  bool inside = memory_on_device(to) && memory_on_device(from);
  work piece = work_of_copying(inside, is_pageable(to) || is_pageable(from), bytes);
  if (!inside)
    piece.kind = memory_on_device(to) ? "copy_in" : "copy_out";
  return piece;
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
  a->device = a->type == cudaMemoryTypeDevice         ? memory_device(pointer)
              : a->type == cudaMemoryTypeUnregistered ? cudaInvalidDeviceId
                                                      : device;
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
static bool without_values; // before PyTorch 2.9: what a program asks of the device is true

ENTRY void emulator_without_values(void) { without_values = true; }

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
  bool is_number = bytes == 4 || bytes == 8, is_truth = bytes == sizeof(bool);
  if (!memory_on_device(from) || memory_on_device(to))
    return false;
  if (answers_left < 0 || (is_truth && without_values)) {
    memset(to, is_truth, bytes);
    return true;
  }
  if (!is_number || !answers_left)
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
  stream_work(stream, memory_copying(to, from, bytes));
  if (waits || is_pageable(to))
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
  stream_work(stream, memory_copying(to, from, width * height));
  for (size_t row = 0; row < height && width * height <= COPIED; row++)
    memory_copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  return cudaSuccess;
}

ENTRY cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, 0);
}

ENTRY cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  stream_work(stream, memory_copying(to, to, bytes / 2)); // half: it reads nothing
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
