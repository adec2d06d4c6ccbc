// How long work lasts on the card: matrix products by their arithmetic, all else by the bytes that
// it moves.
#include "emulator.h"
#include <cublasLt.h>
#include <cublas_v2.h>

// What cards reach of their highest rates: in products with tensor cores and without, and in
// copies. The first two follow from speeds published in 2023.
#define OF_TENSOR_CORES 0.45
#define OF_FP32 0.85
#define OF_BANDWIDTH 0.8
// Bytes that a thread of an elementwise kernel of PyTorch moves: four values of 16 bits, from two
// tensors into a third.
#define OF_THREAD 24

static work at_least(const char *kind, double ns) { return (work){kind, ns > LEAST ? ns : LEAST}; }

work work_of_threads(dim3 grid, dim3 block) {
  double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
  return at_least("kernel", threads * OF_THREAD / (card.memory * OF_BANDWIDTH));
}

work work_of_copying(const void *to, const void *from, size_t bytes) {
  bool inside = memory_on_device(to) && memory_on_device(from);
  double rate = inside ? card.memory / 2 : card.link;
  return at_least(inside ? "kernel" : "copy", bytes / (rate * OF_BANDWIDTH));
}

work work_of_sending(double bytes) { return at_least("send", bytes / (card.gpus * OF_BANDWIDTH)); }

// ---- Products: https://docs.nvidia.com/cuda/cublas/
// The beginning of a cublasHandle_t, and of a cublasLtMatrixLayout_t.
typedef struct handle {
  cudaStream_t stream;
  cublasMath_t math;
} handle;
typedef struct layout {
  cudaDataType type;
  double rows, columns;
  int32_t batch;
} layout;

static void product(cudaStream_t stream, cudaDataType type, bool tf32, double products) {
  bool cores = type != CUDA_R_32F || (tf32 && card.tf32);
  double rate = type != CUDA_R_32F ? card.half : cores ? card.tf32 : card.fp32;
  double ns = 2 * products / (rate * (cores ? OF_TENSOR_CORES : OF_FP32));
  stream_work(stream, at_least("product", ns));
}

ENTRY cublasStatus_t cublasSetStream_v2(cublasHandle_t of, cudaStream_t stream) {
  ((handle *)of)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasSetMathMode(cublasHandle_t of, cublasMath_t mode) {
  ((handle *)of)->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

static bool tf32(cublasHandle_t of) { return ((handle *)of)->math & CUBLAS_TF32_TENSOR_OP_MATH; }

ENTRY cublasStatus_t cublasSgemm_v2(cublasHandle_t of, cublasOperation_t on_a,
                                    cublasOperation_t on_b, int m, int n, int k, const float *alpha,
                                    const float *a, int lda, const float *b, int ldb,
                                    const float *beta, float *c, int ldc) {
  product(((handle *)of)->stream, CUDA_R_32F, tf32(of), (double)m * n * k);
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t of, cublasOperation_t on_a,
                                               cublasOperation_t on_b, int m, int n, int k,
                                               const float *alpha, const float *a, int lda,
                                               long long int stride_a, const float *b, int ldb,
                                               long long int stride_b, const float *beta, float *c,
                                               int ldc, long long int stride_c, int batch) {
  product(((handle *)of)->stream, CUDA_R_32F, tf32(of), (double)batch * m * n * k);
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasGemmEx(cublasHandle_t of, cublasOperation_t on_a, cublasOperation_t on_b,
                                  int m, int n, int k, const void *alpha, const void *a,
                                  cudaDataType type, int lda, const void *b, cudaDataType type_b,
                                  int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                                  cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  product(((handle *)of)->stream, type, tf32(of), (double)m * n * k);
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t of, cublasOperation_t on_a, cublasOperation_t on_b, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type, int lda, long long int stride_a,
    const void *b, cudaDataType type_b, int ldb, long long int stride_b, const void *beta, void *c,
    cudaDataType type_c, int ldc, long long int stride_c, int batch, cublasComputeType_t compute,
    cublasGemmAlgo_t algorithm) {
  product(((handle *)of)->stream, type, tf32(of), (double)batch * m * n * k);
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *new, cudaDataType type,
                                                uint64_t rows, uint64_t columns, int64_t leading) {
  layout *l = object_new(512);
  *l = (layout){type, rows, columns, 1};
  *new = (cublasLtMatrixLayout_t)l;
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of,
                                                      cublasLtMatrixLayoutAttribute_t what,
                                                      const void *value, size_t bytes) {
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    ((layout *)of)->batch = *(const int32_t *)value;
  return CUBLAS_STATUS_SUCCESS;
}

// Whichever of its sides is transposed, a has m x k values, and d has m x n.
ENTRY cublasStatus_t cublasLtMatmul(cublasLtHandle_t of, cublasLtMatmulDesc_t description,
                                    const void *alpha, const void *a, cublasLtMatrixLayout_t in_a,
                                    const void *b, cublasLtMatrixLayout_t in_b, const void *beta,
                                    const void *c, cublasLtMatrixLayout_t in_c, void *d,
                                    cublasLtMatrixLayout_t in_d,
                                    const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                    size_t bytes, cudaStream_t stream) {
  const layout *first = (layout *)in_a, *result = (layout *)in_d;
  double values = first->rows * first->columns * result->columns * result->batch;
  product(stream, first->type, false, values);
  return CUBLAS_STATUS_SUCCESS;
}
