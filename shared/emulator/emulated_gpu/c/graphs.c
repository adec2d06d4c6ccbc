// Graphs: to launch one is one piece of work for the host, and takes the card as long as what was
// captured. Its memory was allocated during the capture; nothing else of that is recorded.
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__GRAPH.html
#include "emulator.h"
#include <stdlib.h>

static _Atomic uint64_t captures;

ENTRY cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  atomic_store(stream_capture(handle), atomic_fetch_add(&captures, 1) + 1);
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  double ns = streams_end_capture(atomic_load(stream_capture(handle)));
  *graph = object_new(sizeof ns);
  *(double *)*graph = ns;
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
  bool active = atomic_load(stream_capture(handle));
  *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
ENTRY cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                           enum cudaStreamCaptureStatus *status,
                                           unsigned long long *id, cudaGraph_t *graph,
                                           const cudaGraphNode_t **dependencies,
                                           const cudaGraphEdgeData **edges, size_t *count) {
  if (edges)
    *edges = NULL;
#else
ENTRY cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                           enum cudaStreamCaptureStatus *status,
                                           unsigned long long *id, cudaGraph_t *graph,
                                           const cudaGraphNode_t **dependencies, size_t *count) {
#endif
  if (id)
    *id = atomic_load(stream_capture(handle));
  if (graph)
    *graph = NULL;
  if (dependencies)
    *dependencies = NULL;
  if (count)
    *count = 0;
  return cudaStreamIsCapturing(handle, status);
}

ENTRY cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph,
                                       unsigned long long flags) {
  *instance = object_new(sizeof(double));
  *(double *)*instance = *(double *)graph;
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *instance, cudaGraph_t graph,
                                                unsigned long long flags) {
  return cudaGraphInstantiate(instance, graph, flags);
}

// One node, since PyTorch warns of a graph without nodes.
ENTRY cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  if (!nodes)
    *count = 1;
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t handle) {
  stream_work(handle, (work){"graph", *(double *)instance});
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  free(graph);
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  free(instance);
  return cudaSuccess;
}

ENTRY cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *data, cudaHostFn_t destroy,
                                       unsigned count, unsigned flags) {
  *object = object_new(8);
  return cudaSuccess;
}

ENTRY cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  free(object);
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                            unsigned count, unsigned flags) {
  return cudaSuccess;
}
