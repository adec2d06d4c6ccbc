// cuDNN: handles and descriptors: https://docs.nvidia.com/deeplearning/cudnn/
// What it computes convolutions and attention with is in cudnn_graphs.c.
#include "emulator.h"
#include <cudnn.h>
#include <string.h>

// Its version is what PyTorch was built with, or PyTorch refuses it.
ENTRY size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
ENTRY size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
ENTRY cudnnStatus_t cudnnGetProperty(libraryPropertyType part, int *value) {
  static const int version[] = {CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL};
  *value = version[part];
  return CUDNN_STATUS_SUCCESS;
}
ENTRY const char *cudnnGetErrorString(cudnnStatus_t status) { return "emulated cuDNN"; }
ENTRY void cudnnGetLastErrorString(char *message, size_t size) {
  if (size)
    *message = 0;
}

CREATES(cudnn, cudnnCreate, cudnnHandle_t)
ENTRY cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *(cudaStream_t *)handle = stream;
  return CUDNN_STATUS_SUCCESS;
}
ENTRY cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  *stream = *(cudaStream_t *)handle;
  return CUDNN_STATUS_SUCCESS;
}
CREATES(cudnn, cudnnCreateTensorDescriptor, cudnnTensorDescriptor_t)
CREATES(cudnn, cudnnCreateFilterDescriptor, cudnnFilterDescriptor_t)
CREATES(cudnn, cudnnCreateConvolutionDescriptor, cudnnConvolutionDescriptor_t)
CREATES(cudnn, cudnnCreateDropoutDescriptor, cudnnDropoutDescriptor_t)
CREATES(cudnn, cudnnCreateRNNDescriptor, cudnnRNNDescriptor_t)
CREATES(cudnn, cudnnCreateRNNDataDescriptor, cudnnRNNDataDescriptor_t)
CREATES(cudnn, cudnnCreateActivationDescriptor, cudnnActivationDescriptor_t)
CREATES(cudnn, cudnnCreatePoolingDescriptor, cudnnPoolingDescriptor_t)
CREATES(cudnn, cudnnCreateCTCLossDescriptor, cudnnCTCLossDescriptor_t)
CREATES(cudnn, cudnnCreateSpatialTransformerDescriptor, cudnnSpatialTransformerDescriptor_t)

// Descriptors of tensors and filters keep their sizes, which PyTorch asks of recurrent layers.
typedef struct shape {
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int dimensions, sizes[CUDNN_DIM_MAX];
} shape;
_Static_assert(sizeof(shape) <= OBJECT, "a shape fits into an object");

static void shape_set(void *object, cudnnDataType_t type, int dimensions, const int sizes[]) {
  shape *s = object;
  s->type = type;
  s->dimensions = dimensions < CUDNN_DIM_MAX ? dimensions : CUDNN_DIM_MAX;
  memcpy(s->sizes, sizes, s->dimensions * sizeof *sizes);
}

static void shape_get(const void *object, int wanted, cudnnDataType_t *type, int *dimensions,
                      int sizes[]) {
  const shape *s = object;
  *type = s->type;
  *dimensions = s->dimensions;
  for (int i = 0; i < wanted && i < s->dimensions; i++)
    sizes[i] = s->sizes[i];
}

ENTRY cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t of, cudnnDataType_t type,
                                               int dimensions, const int sizes[],
                                               const int strides[]) {
  shape_set(of, type, dimensions, sizes);
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t of, int wanted,
                                               cudnnDataType_t *type, int *dimensions, int sizes[],
                                               int strides[]) {
  shape_get(of, wanted, type, dimensions, sizes);
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t of, cudnnDataType_t type,
                                               cudnnTensorFormat_t format, int dimensions,
                                               const int sizes[]) {
  shape_set(of, type, dimensions, sizes);
  ((shape *)of)->format = format;
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t of, int wanted,
                                               cudnnDataType_t *type, cudnnTensorFormat_t *format,
                                               int *dimensions, int sizes[]) {
  shape_get(of, wanted, type, dimensions, sizes);
  *format = ((const shape *)of)->format;
  return CUDNN_STATUS_SUCCESS;
}

// It is for activations that are fused with it, which PyTorch does not ask for.
ENTRY cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t x, size_t *bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}
