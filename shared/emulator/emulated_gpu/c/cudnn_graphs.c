// cuDNN's backend API: https://docs.nvidia.com/deeplearning/cudnn/backend/latest/
// A program describes tensors and operations, makes a graph of them, asks heuristics for engines
// that compute it, and executes a plan of one. Descriptors keep what a convolution consists of.
#include "emulator.h"
#include "fitted/convolutions.h"
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#define SPACE 3                      // dimensions beside images and channels, at most
#define ENGINECFG_WORKSPACE_SIZE 303 // CUDNN_ATTR_..., since cuDNN 9.2

typedef struct tensor {
  cudnnDataType_t type;
  int dimensions;
  int64_t sizes[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX]; // images, channels, then the space
} tensor;

typedef struct window {
  int64_t padding[SPACE], stride[SPACE];
} window;

typedef struct operation {
  bool convolves;
  pass pass;
  tensor x, y, w;
  window window;
} operation;

// One structure for all types, since few exist at a time. From an operation to a plan of its
// graph, each has a copy of the operation: what it was made of may be destroyed.
typedef struct descriptor {
  cudnnBackendHeurMode_t mode;
  tensor tensor;
  window window;
  operation operation;
  plan plan;
} descriptor;

ENTRY cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                 cudnnBackendDescriptor_t *of) {
  *of = object_new(sizeof(descriptor));
  return CUDNN_STATUS_SUCCESS;
}

ENTRY cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t of) {
  free(of);
  return CUDNN_STATUS_SUCCESS;
}

static convolution convolution_of(const operation *o) {
  int last = o->x.dimensions - 1;
  convolution c = {.pass = o->pass, .positions = 1, .area = 1, .pointwise = true, .patches = true};
  bool half = o->x.type == CUDNN_DATA_HALF || o->x.type == CUDNN_DATA_BFLOAT16;
  c.width = half ? 2 : o->x.type == CUDNN_DATA_FLOAT ? 4 : 0;
  c.bfloat = o->x.type == CUDNN_DATA_BFLOAT16;
  c.last = o->x.strides[last] != 1 || o->y.strides[last] != 1;
  c.volumes = o->x.dimensions > 4;
  c.images = o->x.sizes[0];
  c.inputs = o->w.sizes[1] ? o->w.sizes[1] : 1;
  c.groups = o->x.sizes[1] / c.inputs;
  c.results = o->y.sizes[1] / (c.groups ? c.groups : 1);
  c.rows = o->y.sizes[2];
  c.y_points = c.images;
  for (int i = 2; i <= last; i++) {
    c.stride = o->window.stride[i - 2];
    c.positions *= o->w.sizes[i];
    c.area *= o->x.sizes[i];
    c.y_points *= o->y.sizes[i];
    c.pointwise &= o->w.sizes[i] == 1 && c.stride == 1 && o->window.padding[i - 2] == 0;
    c.patches &= o->w.sizes[i] == c.stride;
  }
  c.x_points = c.images * c.area;
  c.weights = o->y.sizes[1] * c.inputs * c.positions;
  c.x = c.x_points * o->x.sizes[1] * c.width;
  c.y = c.y_points * o->y.sizes[1] * c.width;
  c.w = c.weights * c.width;
  return c;
}

// Say once of what kind the workspaces are.
static void report(const operation *o) {
  bool measured = card.capability == 90 && CUDNN_VERSION / 100 == 919;
  if (!o->convolves && !measured)
    called_by_name("cudnnBackend(workspaces of attention are as measured on Hopper with "
                   "cuDNN 9.19)");
  if (!o->convolves)
    return;
  if (!measured)
    called_by_name("cudnnBackend(workspaces of convolutions are as measured on Hopper with "
                   "cuDNN 9.19)");
  convolution c = convolution_of(o);
  if (c.groups > 1 && c.inputs > 1)
    called_by_name("cudnnBackend(workspaces of grouped convolutions are an assumption)");
  if (!c.width)
    called_by_name("cudnnBackend(workspaces of convolutions in 64 bits are not counted)");
}

static void keep(int64_t to[], int most, int64_t count, const void *elements) {
  memcpy(to, elements, (count < most ? count : most) * sizeof *to);
}

// Each pass has attributes of its own for the same parts.
static const struct part {
  int attribute;
  pass pass;
  size_t at; // where a tensor is kept; 0 is the window
} parts[] = {
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, RESULT, offsetof(operation, x)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, RESULT, offsetof(operation, y)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, RESULT, offsetof(operation, w)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, RESULT, 0},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, INPUT_GRADIENT, offsetof(operation, x)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, INPUT_GRADIENT, offsetof(operation, y)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, INPUT_GRADIENT, offsetof(operation, w)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, INPUT_GRADIENT, 0},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, WEIGHT_GRADIENT, offsetof(operation, x)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, WEIGHT_GRADIENT, offsetof(operation, y)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, WEIGHT_GRADIENT, offsetof(operation, w)},
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, WEIGHT_GRADIENT, 0},
};

static void operation_set(operation *o, int attribute, const descriptor *from) {
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (parts[i].attribute != attribute)
      continue;
    o->convolves = true;
    o->pass = parts[i].pass;
    if (parts[i].at)
      *(tensor *)((char *)o + parts[i].at) = from->tensor;
    else
      o->window = from->window;
  }
}

static void inherit(descriptor *to, const descriptor *from) {
  to->operation = from->operation;
  to->plan = from->plan;
}

ENTRY cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                             cudnnBackendAttributeName_t attribute,
                                             cudnnBackendAttributeType_t type, int64_t count,
                                             const void *elements) {
  descriptor *of = object;
  if (count < 1 || !elements)
    return CUDNN_STATUS_SUCCESS;
  const descriptor *const *others = elements, *first = NULL;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    first = others[0];
    operation_set(&of->operation, attribute, first);
  }
  switch ((int)attribute) { // newer versions have more of them than are named here
  case CUDNN_ATTR_TENSOR_DATA_TYPE: of->tensor.type = *(const cudnnDataType_t *)elements; break;
  case CUDNN_ATTR_TENSOR_DIMENSIONS:
    of->tensor.dimensions = count < CUDNN_DIM_MAX ? count : CUDNN_DIM_MAX;
    keep(of->tensor.sizes, CUDNN_DIM_MAX, count, elements);
    break;
  case CUDNN_ATTR_TENSOR_STRIDES: keep(of->tensor.strides, CUDNN_DIM_MAX, count, elements); break;
  case CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS: keep(of->window.padding, SPACE, count, elements); break;
  case CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES:
    keep(of->window.stride, SPACE, count, elements);
    break;
  case CUDNN_ATTR_OPERATIONGRAPH_OPS: // a convolution, perhaps with what follows it
    for (int64_t i = 0; i < count; i++)
      if (others[i]->operation.convolves)
        of->operation = others[i]->operation;
    break;
  case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
    report(&first->operation);
    inherit(of, first);
    break;
  case CUDNN_ATTR_ENGINE_OPERATION_GRAPH:
  case CUDNN_ATTR_ENGINECFG_ENGINE:
  case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: inherit(of, first); break;
  case CUDNN_ATTR_ENGINEHEUR_MODE: of->mode = *(const cudnnBackendHeurMode_t *)elements; break;
  case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: of->plan = *(const int64_t *)elements; break;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Return how many plans there are, and set as many as are wanted. What always works, slowly and
// without a workspace, is also the answer to a question for a fallback.
static int64_t results_get(const descriptor *of, int64_t wanted, descriptor *results[]) {
  plan plans[3] = {WITHOUT_TENSOR_CORES};
  int64_t count = 1;
  if (of->operation.convolves && of->mode != CUDNN_HEUR_MODE_FALLBACK)
    for (count = 0; count < 3; count++)
      plans[count] = (plan)count;
  if (results && wanted < count)
    count = wanted;
  for (int64_t i = 0; results && i < count; i++) {
    inherit(results[i], of);
    results[i]->plan = plans[i];
  }
  return count;
}

// Whether it is TF32: unless that is allowed, PyTorch leaves such engines out.
static bool notes_get(const descriptor *of, cudnnBackendNumericalNote_t *notes) {
  bool tf32 = of->operation.x.type == CUDNN_DATA_FLOAT && of->plan != WITHOUT_TENSOR_CORES;
  if (tf32 && notes)
    *notes = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  return tf32;
}

static int64_t workspace_of(const descriptor *of) {
  if (!of->operation.convolves)
    return 256; // attention's, beside what PyTorch's part of cuDNN adds for its backward pass
  convolution c = convolution_of(&of->operation);
  return convolution_workspace(&c, of->plan);
}

ENTRY cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t object,
                                             cudnnBackendAttributeName_t attribute,
                                             cudnnBackendAttributeType_t type, int64_t wanted,
                                             int64_t *count, void *elements) {
  const descriptor *of = object;
  int64_t unused, value = 0;
  count = count ? count : &unused;
  elements = wanted > 0 ? elements : NULL;
  *count = 1;
  switch ((int)attribute) {
  case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    *count = results_get(of, wanted, elements);
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    *count = notes_get(of, elements);
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_ENGINECFG_ENGINE:
    if (elements)
      inherit(*(descriptor **)elements, of);
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: value = of->plan; break;
  case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
  case ENGINECFG_WORKSPACE_SIZE: value = workspace_of(of); break;
  }
  // All else is one number, which is 0.
  if (elements && type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
    memcpy(elements, &value, type == CUDNN_TYPE_INT64 ? 8 : type == CUDNN_TYPE_BOOLEAN ? 1 : 4);
  return CUDNN_STATUS_SUCCESS;
}

// What needs the largest workspace is tried and not kept.
ENTRY cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                        cudnnBackendDescriptor_t pack) {
  const descriptor *of = plan;
  if (of->operation.convolves && of->plan == LARGEST)
    return CUDNN_STATUS_EXECUTION_FAILED;
  cudaStream_t stream = *(cudaStream_t *)handle;
  if (!of->operation.convolves) {
    stream_work(stream, (work){"product", LEAST});
    return CUDNN_STATUS_SUCCESS;
  }
  convolution c = convolution_of(&of->operation);
  stream_work(stream, work_of_convolution(&c, of->plan, workspace_of(of)));
  return CUDNN_STATUS_SUCCESS;
}
