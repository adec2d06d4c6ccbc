// Kernels: launched, they take their time and do nothing.
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EXECUTION.html
#include "emulator.h"
#include <string.h>

// The names with underscores are those of the public header crt/host_runtime.h, which compiled CUDA
// code calls to register its kernels, and to launch them.
static char loaded; // its address stands for every module

ENTRY void **__cudaRegisterFatBinary(void *code) { return (void **)&loaded; }
ENTRY void __cudaRegisterFatBinaryEnd(void **module) {}
ENTRY void __cudaUnregisterFatBinary(void **module) {}
ENTRY void __cudaRegisterFunction(void **module, const char *host, char *code, const char *name,
                                  int limit, uint3 *thread, uint3 *block, dim3 *blocks, dim3 *grid,
                                  int *warp) {}
ENTRY void __cudaRegisterVar(void **module, char *host, char *address, const char *name, int ext,
                             size_t bytes, int constant, int global) {}

static _Thread_local struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} configuration;

ENTRY unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                           struct CUstream_st *stream) {
  configuration.grid = grid;
  configuration.block = block;
  configuration.shared = shared;
  configuration.stream = stream;
  return 0;
}

ENTRY cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
                                             void *stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *(void **)stream = configuration.stream;
  return cudaSuccess;
}

ENTRY cudaError_t __cudaGetKernel(void **kernel, const void *function) {
  *kernel = (void *)function;
  return cudaSuccess;
}

ENTRY cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **arguments,
                                     size_t shared, cudaStream_t stream) {
  stream_work(stream, work_of_threads(grid, block));
  return cudaSuccess;
}

ENTRY cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                   size_t shared, cudaStream_t stream) {
  stream_work(stream, work_of_threads(grid, block));
  return cudaSuccess;
}

ENTRY cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function,
                                      void **arguments) {
  stream_work(how->stream, work_of_threads(how->gridDim, how->blockDim));
  return cudaSuccess;
}

ENTRY cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                              void **arguments, size_t shared,
                                              cudaStream_t stream) {
  stream_work(stream, work_of_threads(grid, block));
  return cudaSuccess;
}

// The architecture of the code that PyTorch's wheels bring for this card: the latest of its
// generation that it can run.
static int compiled_for(void) {
  static const int architectures[] = {120, 100, 90, 86, 80, 75, 70};
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if (architectures[i] <= card.capability)
      return architectures[i];
  return card.capability;
}

// The properties of compiled kernels are not known. With these ordinary values any block fits.
ENTRY cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = compiled_for();
  a->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}

ENTRY cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
                                       int value) {
  return cudaSuccess;
}

ENTRY cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                                int threads, size_t shared) {
  int most = threads > 0 ? card.threads / threads : 1;
  *blocks = most < 1 ? 1 : most > blocks_per_multiprocessor() ? blocks_per_multiprocessor() : most;
  return cudaSuccess;
}

ENTRY cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                         const void *function,
                                                                         int threads, size_t shared,
                                                                         unsigned flags) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
