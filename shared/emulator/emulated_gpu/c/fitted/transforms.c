// cuFFT: plans, and their workspaces. https://docs.nvidia.com/cuda/cufft/ Its chapter on accuracy
// and performance has the kinds of algorithms: factors up to 127 by Cooley and Tukey, larger primes
// by Bluestein. From which sizes on they need memory are rules that one H200 with PyTorch 2.11.0
// and CUDA 13.0 follows. All 75 measured transforms that were not used to find them
// (workspaces.json.xz) are within 2 % or 1 MiB. No other card or version was measured.
#include "emulator.h"
#include <cufftXt.h>

#define PRIME 127        // the largest factor without Bluestein's algorithm
#define SHARED (1 << 17) // bytes of a transform that one block of threads keeps in shared memory

static int64_t largest_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t factor = 2; factor * factor <= n; factor++)
    for (; n % factor == 0; n /= factor)
      largest = factor;
  return n > 1 ? n : largest;
}

// Return the length of the convolution by which Bluestein's algorithm computes n values.
static int64_t convolved(int64_t n) {
  int64_t length = 2 * n - 1;
  while (largest_factor(length) > 5)
    length++;
  return length;
}

// Return how many complex values of a workspace a transform of n values needs, of so many of them.
static int64_t along_rows(int64_t n, int64_t count, int64_t width) {
  if (largest_factor(n) <= PRIME)
    return n * width <= SHARED ? 0 : count * n;
  int64_t length = convolved(n);
  return length * width <= SHARED / 2 ? 0 : count * 2 * length;
}

// An even number n of real values counts as n / 2 complex ones, which are taken apart afterwards.
// An odd number counts as complex: two transforms as one, as its real and its imaginary part.
static int64_t along_real_rows(int64_t n, int64_t count, int64_t width) {
  int64_t half = n / 2, pairs = (count + 1) / 2;
  if (n % 2) {
    int64_t more = along_rows(n, pairs, width), packed = n > 256 ? 2 * pairs * n : 0;
    return packed + (more > pairs * n ? more - pairs * n : 0);
  }
  if (largest_factor(half) > PRIME)
    return count * half + along_rows(half, count, width);
  bool simple = largest_factor(half) <= 7 || half < 121;
  return simple && 2 * half * width <= SHARED ? 0 : count * half;
}

// Other dimensions go over columns: what does not fit into a block's memory is copied.
static bool copies_columns(int64_t n, int64_t width) {
  bool power_of_two = (n & (n - 1)) == 0;
  return n * width > 8192 && !power_of_two;
}

ENTRY cufftResult cufftCreate(cufftHandle *plan) {
  static _Atomic int plans;
  *plan = ++plans;
  return CUFFT_SUCCESS;
}

ENTRY cufftResult cufftXtMakePlanMany(cufftHandle plan, int rank, long long *n, long long *inputs,
                                      long long input_stride, long long input_distance,
                                      cudaDataType input, long long *outputs,
                                      long long output_stride, long long output_distance,
                                      cudaDataType output, long long batch, size_t *bytes,
                                      cudaDataType computed) {
  int64_t width = computed == CUDA_C_64F || computed == CUDA_R_64F ? 16 : 8;
  int64_t row = n[rank - 1], rows = 1; // of one transform
  bool real = input != output, columns = false;
  for (int i = 0; i < rank - 1; i++) {
    rows *= n[i];
    columns |= copies_columns(n[i], width);
  }
  int64_t values = rows * (real ? along_real_rows : along_rows)(row, batch, width);
  int64_t copy = columns ? rows * batch * (real ? row / 2 + 1 : row) : 0;
  *bytes = (values > copy ? values : copy) * width;
  if (card.capability != 90 || CUFFT_VERSION / 1000 != 12)
    called_by_name("cufftXtMakePlanMany(its workspace is as measured on Hopper with CUDA 13.0)");
  return CUFFT_SUCCESS;
}
