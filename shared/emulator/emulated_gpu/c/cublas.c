// cuBLAS: handles, and how much a product computes. Other functions that only compute are generated
// by build.py, and do nothing. https://docs.nvidia.com/cuda/cublas/
#include "emulator.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

// PyTorch allocates its workspaces; beside them, cuBLAS takes no memory of its own.
#undef cublasCreate
#undef cublasGetPointerMode
CREATES(cublas, cublasCreate_v2, cublasHandle_t)
CREATES(cublas, cublasLtCreate, cublasLtHandle_t)
CREATES(cublas, cublasLtMatmulPreferenceCreate, cublasLtMatmulPreference_t)

// It begins with how it computes.
ENTRY cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                              cublasComputeType_t compute, cudaDataType_t scale) {
  *description = object_new(OBJECT);
  *(cublasComputeType_t *)*description = compute;
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  free(description);
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  free(layout);
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  free(preference);
  return CUBLAS_STATUS_SUCCESS;
}

// One algorithm is enough: PyTorch has allocated the workspace before it asks for one.
ENTRY cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *count) {
  memset(results, 0, sizeof *results);
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// Factorizations of a batch say at once, on the host, whether their arguments were right.
#define FACTORS(letter, type)                                                                      \
  ENTRY cublasStatus_t cublas##letter##geqrfBatched(cublasHandle_t handle, int m, int n,           \
                                                    type *const a[], int lda, type *const tau[],   \
                                                    int *info, int batch) {                        \
    *info = 0;                                                                                     \
    return CUBLAS_STATUS_SUCCESS;                                                                  \
  }                                                                                                \
  ENTRY cublasStatus_t cublas##letter##gelsBatched(                                                \
      cublasHandle_t handle, cublasOperation_t operation, int m, int n, int sides,                 \
      type *const a[], int lda, type *const c[], int ldc, int *info, int *infos, int batch) {      \
    *info = 0;                                                                                     \
    return CUBLAS_STATUS_SUCCESS;                                                                  \
  }
FACTORS(S, float)
FACTORS(D, double)
FACTORS(C, cuComplex)
FACTORS(Z, cuDoubleComplex)

ENTRY size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

ENTRY cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- Products. The beginning of a cublasHandle_t, and of a cublasLtMatrixLayout_t.
typedef struct handle {
  cudaStream_t stream;
  cublasMath_t math;
} handle;
typedef struct layout {
  cudaDataType type;
  double rows, columns;
  int32_t batch;
} layout;

ENTRY cublasStatus_t cublasSetStream_v2(cublasHandle_t of, cudaStream_t stream) {
  ((handle *)of)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasSetMathMode(cublasHandle_t of, cublasMath_t mode) {
  ((handle *)of)->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t product(cublasHandle_t of, cudaDataType type, cublasOperation_t on_a,
                              cublasOperation_t on_b, double flop) {
  const handle *h = (const handle *)of;
  bool along = on_a == CUBLAS_OP_T && on_b == CUBLAS_OP_N;
  bool tf32 = h->math & CUBLAS_TF32_TENSOR_OP_MATH;
  stream_work(h->stream, work_of_product(type, tf32, along, flop));
  return CUBLAS_STATUS_SUCCESS;
}

ENTRY cublasStatus_t cublasSgemm_v2(cublasHandle_t of, cublasOperation_t on_a,
                                    cublasOperation_t on_b, int m, int n, int k, const float *alpha,
                                    const float *a, int lda, const float *b, int ldb,
                                    const float *beta, float *c, int ldc) {
  return product(of, CUDA_R_32F, on_a, on_b, 2.0 * m * n * k);
}

ENTRY cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t of, cublasOperation_t on_a,
                                               cublasOperation_t on_b, int m, int n, int k,
                                               const float *alpha, const float *a, int lda,
                                               long long int stride_a, const float *b, int ldb,
                                               long long int stride_b, const float *beta, float *c,
                                               int ldc, long long int stride_c, int batch) {
  return product(of, CUDA_R_32F, on_a, on_b, 2.0 * batch * m * n * k);
}

ENTRY cublasStatus_t cublasGemmEx(cublasHandle_t of, cublasOperation_t on_a, cublasOperation_t on_b,
                                  int m, int n, int k, const void *alpha, const void *a,
                                  cudaDataType type, int lda, const void *b, cudaDataType type_b,
                                  int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                                  cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return product(of, type, on_a, on_b, 2.0 * m * n * k);
}

ENTRY cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t of, cublasOperation_t on_a, cublasOperation_t on_b, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type, int lda, long long int stride_a,
    const void *b, cudaDataType type_b, int ldb, long long int stride_b, const void *beta, void *c,
    cudaDataType type_c, int ldc, long long int stride_c, int batch, cublasComputeType_t compute,
    cublasGemmAlgo_t algorithm) {
  return product(of, type, on_a, on_b, 2.0 * batch * m * n * k);
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
  double flop = 2 * first->rows * first->columns * result->columns * result->batch;
  bool tf32 = *(cublasComputeType_t *)description == CUBLAS_COMPUTE_32F_FAST_TF32;
  stream_work(stream, work_of_product(first->type, tf32, true, flop));
  return CUBLAS_STATUS_SUCCESS;
}
