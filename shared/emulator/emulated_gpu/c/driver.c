// The CUDA driver: expandable segments, and what Triton and compiled kernels ask of it.
// https://docs.nvidia.com/cuda/cuda-driver-api/
#define _GNU_SOURCE
#include "emulator.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static char context, module; // their addresses stand for every context and every module

// ---- Virtual memory: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
typedef struct physical {
  size_t bytes;
  int on;
} physical;

ENTRY CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                   CUdeviceptr wanted, unsigned long long flags) {
  *pointer = memory_addresses(bytes);
  return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

ENTRY CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  cudaFree((void *)pointer);
  return CUDA_SUCCESS;
}

ENTRY CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *properties, unsigned long long flags) {
  int on = properties->location.id;
  pthread_mutex_lock(&lock);
  bool had_room = memory_take(on, bytes);
  pthread_mutex_unlock(&lock);
  if (!had_room)
    return CUDA_ERROR_OUT_OF_MEMORY;
  physical *new = object_new(sizeof *new);
  *new = (physical){bytes, on};
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)new;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  physical *old = (physical *)(uintptr_t)handle;
  pthread_mutex_lock(&lock);
  memory_give(old->on, old->bytes);
  pthread_mutex_unlock(&lock);
  free(old);
  return CUDA_SUCCESS;
}

// Only cuMemCreate counts bytes. The addresses can be written without a mapping.
ENTRY CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return CUDA_SUCCESS;
}

ENTRY CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) { return CUDA_SUCCESS; }

ENTRY CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                              size_t count) {
  return CUDA_SUCCESS;
}

ENTRY CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                             CUmemAllocationGranularity_flags option) {
  *bytes = 2 * MIB;
  return CUDA_SUCCESS;
}

// ---- Devices and contexts
ENTRY CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }

ENTRY CUresult cuDriverGetVersion(int *version) {
  cudaDriverGetVersion(version);
  return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGetCount(int *count) {
  *count = card.devices;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceGet(CUdevice *handle, int ordinal) {
  *handle = ordinal;
  return ordinal < card.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

ENTRY CUresult cuDeviceGetName(char *name, int size, CUdevice of) {
  strncpy(name, card.name, size);
  return CUDA_SUCCESS;
}

ENTRY CUresult cuDeviceTotalMem(size_t *bytes, CUdevice of) {
  *bytes = card.bytes;
  return CUDA_SUCCESS;
}

// Attributes have the same numbers in the driver and in the runtime.
ENTRY CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice of) {
  if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
    *value = 1;
    return CUDA_SUCCESS;
  }
  return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, of);
}

ENTRY CUresult cuDevicePrimaryCtxGetState(CUdevice of, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice of) {
  *handle = (CUcontext)&context;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxGetCurrent(CUcontext *handle) {
  *handle = (CUcontext)&context;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxSetCurrent(CUcontext handle) { return CUDA_SUCCESS; }

ENTRY CUresult cuCtxGetDevice(CUdevice *current) {
  *current = device;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  *value = MIB;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }

ENTRY CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : error ? "error" : "no error";
  return CUDA_SUCCESS;
}

ENTRY CUresult cuGetErrorName(CUresult error, const char **text) {
  return cuGetErrorString(error, text);
}

ENTRY CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                     CUdeviceptr pointer) {
  struct cudaPointerAttributes a;
  cudaPointerGetAttributes(&a, (void *)pointer);
  bool is_known = a.type != cudaMemoryTypeUnregistered;
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
    *(CUdeviceptr *)value = pointer;
  else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    *(unsigned *)value = a.type == cudaMemoryTypeDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    *(int *)value = a.device;
  else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
    *(CUcontext *)value = (CUcontext)&context;
  else
    return CUDA_ERROR_NOT_SUPPORTED;
  return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- Kernels that a program compiles while it runs, as Triton does
// NVRTC asks for tables of undocumented functions, and works without them.
ENTRY CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}

ENTRY CUresult cuModuleLoadData(CUmodule *handle, const void *image) {
  *handle = (CUmodule)&module;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuModuleLoadDataEx(CUmodule *handle, const void *image, unsigned count,
                                  CUjit_option *options, void **values) {
  return cuModuleLoadData(handle, image);
}

ENTRY CUresult cuModuleLoad(CUmodule *handle, const char *file) {
  return cuModuleLoadData(handle, file);
}

ENTRY CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
  *function = (CUfunction)&module;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuModuleUnload(CUmodule handle) { return CUDA_SUCCESS; }

ENTRY CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction of) {
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
  default: *value = 0;
  }
  return CUDA_SUCCESS;
}

ENTRY CUresult cuFuncSetAttribute(CUfunction of, CUfunction_attribute attribute, int value) {
  return CUDA_SUCCESS;
}

ENTRY CUresult cuFuncSetCacheConfig(CUfunction of, CUfunc_cache config) { return CUDA_SUCCESS; }

ENTRY CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,
                              void **arguments, void **extra) {
  stream_work(stream, work_of_threads((dim3){x, y, z}, (dim3){bx, by, bz}));
  return CUDA_SUCCESS;
}

ENTRY CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction function, void **arguments,
                                void **extra) {
  stream_work(how->hStream,
              work_of_threads((dim3){how->gridDimX, how->gridDimY, how->gridDimZ},
                              (dim3){how->blockDimX, how->blockDimY, how->blockDimZ}));
  return CUDA_SUCCESS;
}

ENTRY CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                                         unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                         CUstream stream, void **arguments) {
  stream_work(stream, work_of_threads((dim3){x, y, z}, (dim3){bx, by, bz}));
  return CUDA_SUCCESS;
}

ENTRY CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                           int threads, size_t shared) {
  return (CUresult)cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

ENTRY CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                            const CUlaunchConfig *how) {
  *clusters = 1;
  return CUDA_SUCCESS;
}

ENTRY CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                      void *address, const cuuint64_t *sizes,
                                      const cuuint64_t *strides, const cuuint32_t *box,
                                      const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                      CUtensorMapFloatOOBfill fill) {
  return CUDA_SUCCESS;
}

ENTRY CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  return (CUresult)cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status);
}

ENTRY CUresult cuStreamSynchronize(CUstream stream) {
  return (CUresult)cudaStreamSynchronize(stream);
}

ENTRY CUresult cuStreamGetCtx(CUstream stream, CUcontext *handle) {
  return cuCtxGetCurrent(handle);
}

ENTRY CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return (CUresult)cudaMemsetAsync((void *)to, value, bytes, stream);
}

ENTRY CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  stream_work(stream, memory_copying((void *)to, (void *)to, 2 * count)); // half: no reading
  for (size_t i = 0; i < count && 4 * count <= COPIED; i++)
    ((unsigned *)to)[i] = value;
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12090
ENTRY CUresult cuLogsRegisterCallback(CUlogsCallback call, void *data, CUlogsCallbackHandle *made) {
  return CUDA_SUCCESS; // there is nothing to log
}
#endif

// ---- Functions by name:
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DRIVER__ENTRY__POINT.html
static CUresult unknown(void) {
  called_by_name("a function of the driver that was looked up by name");
  return CUDA_ERROR_NOT_SUPPORTED;
}

ENTRY cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                                   unsigned version, unsigned long long flags,
                                                   enum cudaDriverEntryPointQueryResult *result) {
  *function = dlsym(RTLD_DEFAULT, name);
  if (!*function)
    *function = unknown;
  if (result)
    *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

ENTRY cudaError_t cudaGetDriverEntryPoint(const char *name, void **function,
                                          unsigned long long flags,
                                          enum cudaDriverEntryPointQueryResult *result) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, result);
}
