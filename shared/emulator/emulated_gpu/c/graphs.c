// Graphs: to launch one is a short piece of work, whatever was captured. Its memory was allocated
// during the capture.
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__GRAPH.html
#include "emulator.h"
#include <stdlib.h>

ENTRY cudaError_t cudaGraphInstantiate(cudaGraphExec_t *instance, cudaGraph_t graph,
                                       unsigned long long flags) {
  *instance = object_new(8);
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
  stream_work(handle, (work){"kernel", LEAST});
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
