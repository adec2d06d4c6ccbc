// Workspaces of cuDNN's batch normalization. NVIDIA publishes none: these are rules that one H200
// with PyTorch 2.11.0, CUDA 13.0 and cuDNN 9.19.0 follows. All ten measured ones that were not used
// to find them (workspaces.json.xz) are within 2 % or 1 MiB. No other card or version was measured.
//
// With channels last it sums over blocks of rows, and adds these sums in the end. Blocks have so
// many rows that one reads 16 KB of 64 channels, 20 KB in 16 bits, and in backward, where it reads
// two tensors, 96 rows.
#include "emulator.h"
#include <cudnn.h>

static size_t partial_sums(cudnnBatchNormMode_t mode, cudnnTensorDescriptor_t x, bool backward) {
  cudnnDataType_t type;
  int dimensions, sizes[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
  cudnnGetTensorNdDescriptor(x, CUDNN_DIM_MAX, &type, &dimensions, sizes, strides);
  size_t rows = sizes[0], channels = sizes[1];
  if (mode != CUDNN_BATCHNORM_SPATIAL_PERSISTENT) // which PyTorch asks for with channels last
    return 0;
  for (int i = 2; i < dimensions; i++)
    rows *= sizes[i];
  size_t rows_of_block = backward ? 96 : type == CUDNN_DATA_FLOAT ? 64 : 160;
  size_t blocks = (rows + rows_of_block - 1) / rows_of_block;
  // Two sums of each channel, and forward also how many values they have, of 64 channels each.
  size_t counts = backward ? 0 : (channels + 63) / 64;
  return blocks * (2 * channels + counts) * sizeof(float) + 1076;
}

ENTRY cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t z,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t statistics,
    const cudnnActivationDescriptor_t activation, size_t *bytes) {
  *bytes = partial_sums(mode, x, false);
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t statistics,
    const cudnnActivationDescriptor_t activation, size_t *bytes) {
  *bytes = partial_sums(mode, x, true);
  return CUDNN_STATUS_SUCCESS;
}
