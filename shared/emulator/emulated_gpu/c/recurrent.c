// cuDNN's recurrent layers and their weights: for each layer and direction the matrices of its
// gates, for the input and for the state before; then the biases of all. The sizes of workspaces
// are in fitted/recurrent_spaces.c.
// https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-adv-library.html
#include "recurrent.h"

static int width_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

ENTRY cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t of, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
    cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode, cudnnDataType_t type,
    cudnnDataType_t precision, cudnnMathType_t math, int32_t input, int32_t hidden,
    int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  recurrent *r = (recurrent *)of;
  r->gates = cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1;
  r->biases = bias == CUDNN_RNN_NO_BIAS ? 0 : bias == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
  r->directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
  r->layers = layers;
  r->input = input;
  r->hidden = hidden;
  r->projected = projected ? projected : hidden;
  r->type = type;
  r->width = width_of(type);
  r->drops = layers > 1 && dropout && *(float *)dropout > 0;
  // In bf16 there is no such kernel, whatever is asked for.
  r->persists = algorithm != CUDNN_RNN_ALGO_STANDARD && type != CUDNN_DATA_BFLOAT16;
  return CUDNN_STATUS_SUCCESS;
}

static size_t input_of(const recurrent *r, int pseudo_layer) {
  return pseudo_layer < r->directions ? r->input : r->directions * r->projected;
}

static size_t matrices_of(const recurrent *r, int pseudo_layer) {
  size_t projection = r->projected == r->hidden ? 0 : (size_t)r->hidden * r->projected;
  return (size_t)r->gates * r->hidden * (input_of(r, pseudo_layer) + r->projected) + projection;
}

size_t recurrent_matrices(const recurrent *r, int count) {
  size_t values = 0;
  for (int i = 0; i < count; i++)
    values += matrices_of(r, i);
  return values;
}

ENTRY cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t of,
                                               size_t *bytes) {
  const recurrent *r = (const recurrent *)of;
  int count = r->layers * r->directions;
  size_t biases = (size_t)count * r->biases * r->gates * r->hidden;
  *bytes = (recurrent_matrices(r, count) + biases) * r->width;
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t of,
                                            int32_t pseudo_layer, size_t bytes, const void *weights,
                                            int32_t id, cudnnTensorDescriptor_t matrix,
                                            void **matrix_at, cudnnTensorDescriptor_t bias,
                                            void **bias_at) {
  const recurrent *r = (const recurrent *)of;
  size_t input = input_of(r, pseudo_layer), before = recurrent_matrices(r, pseudo_layer);
  bool is_projection = id == 2 * r->gates, is_input = id < r->gates;
  size_t columns = is_input ? input : (size_t)r->projected;
  size_t gate = is_input ? id : id - r->gates;
  before += is_input ? gate * r->hidden * columns
                     : (size_t)r->gates * r->hidden * input + gate * r->hidden * columns;
  int rows = is_projection ? r->projected : r->hidden;
  static const int strides[3]; // which PyTorch does not read
  int sizes[] = {1, rows, is_projection ? r->hidden : (int)columns};
  if (matrix_at) { // PyTorch asks for matrices and biases one by one
    cudnnSetTensorNdDescriptor(matrix, r->type, 3, sizes, strides);
    *matrix_at = (char *)weights + before * r->width;
  }
  bool has_bias = !is_projection && (is_input ? r->biases > 0 : r->biases > 1);
  if (bias_at)
    *bias_at = NULL;
  if (bias_at && has_bias) {
    int bias_sizes[] = {1, r->hidden, 1};
    size_t others = (size_t)pseudo_layer * r->biases * r->gates + id;
    size_t values = recurrent_matrices(r, r->layers * r->directions) + others * r->hidden;
    cudnnSetTensorNdDescriptor(bias, r->type, 3, bias_sizes, strides);
    *bias_at = (char *)weights + values * r->width;
  }
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t of, cudnnDataType_t type,
                                              cudnnRNNDataLayout_t layout, int length, int batch,
                                              int vector, const int lengths[], void *padding) {
  *(sequences *)of = (sequences){length, batch};
  return CUDNN_STATUS_SUCCESS;
}

// Dropout keeps a state of 24 bytes for each thread that can be resident.
ENTRY cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) {
  *bytes = (size_t)card.multiprocessors * card.threads * 24;
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t of, cudnnHandle_t handle,
                                              float share, void *states, size_t bytes,
                                              unsigned long long seed) {
  *(float *)of = share;
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t of, cudnnHandle_t handle,
                                                  float share, void *states, size_t bytes,
                                                  unsigned long long seed) {
  *(float *)of = share;
  return CUDNN_STATUS_SUCCESS;
}
