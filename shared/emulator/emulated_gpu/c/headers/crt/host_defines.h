// Stands in for crt/host_defines.h, which the wheels of PyTorch lack. It defines the words
// that CUDA's own compiler knows; for a C compiler they mean nothing.
#ifndef EMULATOR_HOST_DEFINES_H
#define EMULATOR_HOST_DEFINES_H

#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDA_CB
#define __no_return__
#define __noinline__
#define __forceinline__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __thread__
#define __import__
#define __export__
#define __cdecl
#define __annotate__(a)
#define __location__(a)
#define __inline_hint__
#define __CUDA_ARCH_HAS_FEATURE__(x) 0

#endif
