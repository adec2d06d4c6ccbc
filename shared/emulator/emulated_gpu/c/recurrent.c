// cuDNN's recurrent layers: sizes of their weights, workspace and reserve space. NVIDIA publishes
// none of the latter two: these are rules that measurements of Hopper with cuDNN 9.19 follow.
//
// Weights: for each layer and direction the matrices of its gates, for the input and for the state
// before; then the biases of all.
#include "emulator.h"
#include <cudnn.h>

typedef struct recurrent {
  int gates, biases, directions, layers, input, hidden, projected, width; // width: bytes of a value
  cudnnDataType_t type;
  bool persists, drops; // one kernel for all steps; dropout between layers
} recurrent;

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

static size_t matrices_before(const recurrent *r, int pseudo_layer) {
  size_t values = 0;
  for (int i = 0; i < pseudo_layer; i++)
    values += matrices_of(r, i);
  return values;
}

ENTRY cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t of,
                                               size_t *bytes) {
  const recurrent *r = (const recurrent *)of;
  int count = r->layers * r->directions;
  size_t biases = (size_t)count * r->biases * r->gates * r->hidden;
  *bytes = (matrices_before(r, count) + biases) * r->width;
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t of,
                                            int32_t pseudo_layer, size_t bytes, const void *weights,
                                            int32_t id, cudnnTensorDescriptor_t matrix,
                                            void **matrix_at, cudnnTensorDescriptor_t bias,
                                            void **bias_at) {
  const recurrent *r = (const recurrent *)of;
  size_t input = input_of(r, pseudo_layer), before = matrices_before(r, pseudo_layer);
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
    size_t values = matrices_before(r, r->layers * r->directions) + others * r->hidden;
    cudnnSetTensorNdDescriptor(bias, r->type, 3, bias_sizes, strides);
    *bias_at = (char *)weights + values * r->width;
  }
  return CUDNN_STATUS_SUCCESS;
}

typedef struct sequences {
  int length, batch;
} sequences;

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

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Return how many values of a sequence cuDNN works on at once, beside weights. It computes a layer
// after the other, and so takes no more for many: inputs, gates and gradients of all steps.
static size_t working_values(const recurrent *r, size_t steps) {
  size_t input = r->input, hidden = r->hidden, wider = most(input, hidden), values;
  bool is_lstm = r->gates == 4, is_gru = r->gates == 3, both = r->directions == 2;
  // The products of the layers of one direction overlap in chunks of 8 steps, unless they persist.
  bool chunked = r->layers > 1 && !both && !r->persists;
  if (both)
    values = steps * (6 * hidden + 2 * input + 4 * wider);
  else
    values = steps * (2 * hidden + 2 * input + wider) +
             (chunked ? least(steps, 8 * (r->layers + 1)) : steps) * hidden;
  if (r->layers > 1 && !chunked) // from layer to layer
    values += steps * r->directions * hidden;
  if (r->persists)
    values += steps * (is_lstm ? 12 : is_gru ? 14 : 9) * hidden;
  // Cells with gates have another way to compute, which takes more where inputs are narrow. Over
  // long sequences it keeps fewer values at a time.
  size_t narrow = 0;
  if (both && (is_lstm || is_gru))
    narrow = steps * ((is_lstm ? 14 : 12) * hidden + input);
  else if (is_lstm || is_gru)
    narrow = steps * (3 * hidden + input + r->drops * hidden);
  if (!both && is_gru && steps <= 400)
    narrow += steps * hidden;
  else if (!both && is_lstm && (steps <= 200 || r->persists))
    narrow += steps * 2 * hidden;
  else if (!both && is_lstm && steps <= 400)
    narrow += (steps + 46) * hidden;
  if (r->persists && is_lstm)
    narrow += steps * 16 * hidden;
  values = most(values, narrow);
  if (r->projected != r->hidden)
    values += steps * r->directions * r->projected;
  // Each layer has its states, and both directions copy them.
  return values + (size_t)r->layers * r->directions * ((is_lstm ? 10 : 5) + 2 * both) * hidden;
}

// Return how many values of a sequence stay for the backward pass: of an LSTM its gates and cell,
// of a GRU three more than its gates, of others their state; and the results of all layers but the
// last.
static size_t kept_values(const recurrent *r, size_t steps) {
  bool projects = r->projected != r->hidden;
  size_t cell = r->gates == 4 ? 5 + projects : r->gates == 3 ? 6 : 1;
  size_t values = r->layers * cell * r->hidden + (r->layers - 1) * (size_t)r->hidden;
  if (projects)
    values += (size_t)r->layers * r->projected;
  return steps * r->directions * values;
}

ENTRY cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t of,
                                              cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                              size_t *work, size_t *reserve) {
  const recurrent *r = (const recurrent *)of;
  const sequences *s = (const sequences *)x;
  int count = r->layers * r->directions;
  // Each layer and direction can run on a stream of its own, with 8 MiB for its products.
  *work = 8 * MIB * count + matrices_before(r, count) * r->width +
          s->batch * working_values(r, s->length) * r->width;
  // Of dropout a bit stays for each value that both directions of a layer can give to the next.
  size_t outputs = (size_t)s->length * s->batch * r->directions * r->hidden;
  size_t bits = r->drops ? (r->layers - 1) * r->directions * outputs : 0;
  if (reserve && mode == CUDNN_FWD_MODE_TRAINING)
    *reserve = s->batch * kept_values(r, s->length) * r->width + bits / 8 + 256;
  else if (reserve)
    *reserve = 0;
  if (card.capability != 90 || CUDNN_VERSION / 100 != 919)
    called_by_name("cudnnGetRNNTempSpaceSizes(its sizes are as measured on Hopper with cuDNN "
                   "9.19)");
  return CUDNN_STATUS_SUCCESS;
}
