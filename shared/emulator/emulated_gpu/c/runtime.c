// The CUDA runtime: settings, devices and errors.
#include "emulator.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct card card;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local int device;

static long long number(const char *name, long long otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

// CUDA_VISIBLE_DEVICES hides devices, up to the first entry that names none.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
static int visible(int devices) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  if (!text)
    return devices;
  int seen = 0;
  while (*text && seen < devices) {
    char *end;
    long index = strtol(text, &end, 10);
    bool is_number = end != text && (*end == ',' || !*end);
    bool is_identifier = !strncmp(text, "GPU-", 4);
    if ((!is_number || index < 0 || index >= devices) && !is_identifier)
      break;
    seen++;
    text = strchr(text, ',');
    if (!text++)
      break;
  }
  return seen;
}

// Read the settings: when the library is loaded, and again in a fork that becomes another card.
__attribute__((constructor)) ENTRY void emulator_start(void) {
  const char *name = getenv("EMULATED_NAME");
  snprintf(card.name, sizeof card.name, "%s", name ? name : "NVIDIA A100-SXM4-80GB");
  card.bytes = number("EMULATED_BYTES", 84974239744);
  card.context = number("EMULATED_CONTEXT", 0);
  card.capability = number("EMULATED_CAPABILITY", 80);
  card.multiprocessors = number("EMULATED_MULTIPROCESSORS", 108);
  card.threads = number("EMULATED_THREADS", 2048);
  card.cache = number("EMULATED_CACHE", 40 * MIB);
  card.launch = number("EMULATED_LAUNCH", 40000);
  const char *rates = getenv("EMULATED_RATES");
  sscanf(rates ? rates : "19500 156000 312000 2039 31.5 300 152", "%lf %lf %lf %lf %lf %lf %lf",
         &card.fp32, &card.tf32, &card.half, &card.memory, &card.link, &card.gpus, &card.cycles);
  card.ascending = number("EMULATED_ASCENDING", 0);
  card.alone = number("EMULATED_ALONE", 0);
  int devices = number("EMULATED_DEVICES", 1);
  card.devices = visible(devices < DEVICES ? devices : DEVICES);
}

void *object_new(size_t bytes) {
  void *object = calloc(1, bytes);
  if (!object) {
    fputs("emulated GPU: no memory on the host\n", stderr);
    abort();
  }
  return object;
}

// ---- Functions known by name only: each is remembered once, for the report at the end.
static struct called {
  const char *name; // a constant of the code
  struct called *next;
} *called;

void called_by_name(const char *name) {
  pthread_mutex_lock(&lock);
  struct called *entry = called;
  while (entry && strcmp(entry->name, name))
    entry = entry->next;
  if (!entry) {
    entry = object_new(sizeof *entry);
    *entry = (struct called){name, called};
    called = entry;
  }
  pthread_mutex_unlock(&lock);
}

// Write the names into a buffer, one a line; return the bytes that all of them need.
ENTRY size_t emulator_called(char *buffer, size_t size) {
  size_t length = 0;
  pthread_mutex_lock(&lock);
  if (size)
    *buffer = 0;
  for (struct called *entry = called; entry; entry = entry->next) {
    if (length + strlen(entry->name) + 2 < size)
      sprintf(buffer + length, "%s\n", entry->name);
    length += strlen(entry->name) + 1;
  }
  pthread_mutex_unlock(&lock);
  return length;
}

// ---- Errors: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__ERROR.html
// Only allocations fail here, and PyTorch reads their results, so there is no last error to keep.
ENTRY cudaError_t cudaGetLastError(void) { return cudaSuccess; }
ENTRY cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }

static const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

ENTRY const char *cudaGetErrorName(cudaError_t error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error)
      return errors[i].name;
  return "cudaErrorUnknown";
}

ENTRY const char *cudaGetErrorString(cudaError_t error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error)
      return errors[i].text;
  return "unknown error";
}

// ---- Devices: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__DEVICE.html
// Shared memory by capability, in KiB: per multiprocessor, and per block where a kernel asks for
// it.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#features-and-technical-specifications
static const struct {
  int capability, per_multiprocessor, per_block;
} shared_memory[] = {
    {70, 96, 96},  {75, 64, 64},   {80, 164, 163},  {86, 100, 99},   {87, 164, 163},
    {89, 100, 99}, {90, 228, 227}, {100, 228, 227}, {103, 228, 227}, {120, 100, 99},
};

static int shared_kib(bool per_block) {
  size_t last = sizeof shared_memory / sizeof *shared_memory - 1;
  size_t i = 0;
  while (i < last && shared_memory[i].capability < card.capability)
    i++;
  return per_block ? shared_memory[i].per_block : shared_memory[i].per_multiprocessor;
}

int blocks_per_multiprocessor(void) { return card.threads == 2048 ? 32 : 16; }

ENTRY cudaError_t cudaGetDeviceCount(int *count) {
  *count = card.devices;
  return card.devices ? cudaSuccess : cudaErrorNoDevice;
}

ENTRY cudaError_t cudaGetDevice(int *current) {
  *current = device;
  return card.devices ? cudaSuccess : cudaErrorNoDevice;
}

ENTRY cudaError_t cudaSetDevice(int wanted) {
  if (wanted < 0 || wanted >= card.devices)
    return cudaErrorInvalidDevice;
  device = wanted;
  return cudaSuccess;
}

ENTRY cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

ENTRY cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

ENTRY cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

ENTRY cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) {
  *can = one != other;
  return cudaSuccess;
}

ENTRY cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return cudaSuccess; }

ENTRY cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int of) {
  snprintf(text, size, "0000:%02x:00.0", of + 1);
  return cudaSuccess;
}

ENTRY cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int of) {
  if (of < 0 || of >= card.devices)
    return cudaErrorInvalidDevice;
  memset(p, 0, sizeof *p);
  memcpy(p->name, card.name, sizeof card.name);
  memcpy(p->uuid.bytes, "emulated-gpu-000", 16);
  p->uuid.bytes[15] += of;
  p->totalGlobalMem = card.bytes;
  p->major = card.capability / 10;
  p->minor = card.capability % 10;
  p->multiProcessorCount = card.multiprocessors;
  p->maxThreadsPerMultiProcessor = card.threads;
  p->maxBlocksPerMultiProcessor = blocks_per_multiprocessor();
  p->l2CacheSize = card.cache;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = INT32_MAX;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->totalConstMem = 65536;
  p->sharedMemPerBlock = 48 << 10; // without opting in, the same on all cards
  p->sharedMemPerBlockOptin = (size_t)shared_kib(true) << 10;
  p->sharedMemPerMultiprocessor = (size_t)shared_kib(false) << 10;
  p->reservedSharedMemPerBlock = 1024;
  p->textureAlignment = 512;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = 1;
  p->streamPrioritiesSupported = p->managedMemory = p->cooperativeLaunch = 1;
  p->asyncEngineCount = 3;
  p->pciBusID = of + 1;
  return cudaSuccess;
}

ENTRY cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int of) {
  struct cudaDeviceProp p;
  cudaError_t error = cudaGetDeviceProperties(&p, of);
  if (error)
    return error;
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
  case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
  case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = p.sharedMemPerBlockOptin; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = p.sharedMemPerBlock; break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = p.sharedMemPerMultiprocessor; break;
  case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
  case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
  case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
  case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerMultiprocessor; break;
  case cudaDevAttrWarpSize: *value = p.warpSize; break;
  case cudaDevAttrMaxBlockDimX:
  case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[0]; break;
  case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
  case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
  case cudaDevAttrMaxGridDimY:
  case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[1]; break;
  case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrCooperativeLaunch:
  case cudaDevAttrConcurrentKernels:
  case cudaDevAttrCanMapHostMemory:
  case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
  default: *value = 0; // a feature that the emulated card does not have
  }
  return cudaSuccess;
}

ENTRY cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
ENTRY cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
