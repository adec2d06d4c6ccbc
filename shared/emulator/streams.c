// Streams, events and graphs: when work counts as done. Nothing is ever computed.
#include "emulator.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Work of a stream has numbers, from 1 on. It is done at once, or, with the host ahead, as soon as
// the host waits for it or for later work, together with what it had to wait for.
typedef struct stream stream;
typedef struct wait {
  uint64_t at;    // the number of the work that waits
  stream *on;     // for work of this stream,
  uint64_t until; // up to this number
  struct wait *next;
} wait;
struct stream {
  _Atomic uint64_t issued, done;
  _Atomic uint64_t capture; // the number of the capture that it takes part in, 0 for none
  wait *waits;
  int priority, on;
  stream *next; // in the list of all
};
typedef struct event {
  stream *of;
  uint64_t number, capture;
  struct timespec time;
} event;

static stream defaults[DEVICES]; // the default stream of each device
static stream *streams;
static uint64_t captures;

// 0, cudaStreamLegacy and cudaStreamPerThread name the default stream.
static stream *stream_of(cudaStream_t handle) {
  return (uintptr_t)handle <= 2 ? &defaults[device] : (stream *)handle;
}

// When the host has last started something. Who asks about an event long after it is waiting, as
// the thread that watches NCCL's work does.
#define IDLE 1 // second
static _Atomic time_t busy;

static time_t seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void stream_issue(cudaStream_t handle) {
  if (!card.host_ahead)
    return;
  atomic_store(&busy, seconds());
  atomic_fetch_add(&stream_of(handle)->issued, 1);
}

typedef struct task {
  stream *of;
  uint64_t until;
  struct task *next;
} task;

static task *push(task *tasks, stream *of, uint64_t until) {
  task *new = object_new(sizeof *new);
  *new = (task){of, until, tasks};
  return new;
}

// Let work be done, and what it waited for. The lock is held.
static void finish(stream *of, uint64_t until) {
  task *tasks = push(NULL, of, until);
  while (tasks) {
    task current = *tasks;
    free(tasks);
    tasks = current.next;
    if (atomic_load(&current.of->done) >= current.until)
      continue;
    atomic_store(&current.of->done, current.until);
    wait **link = &current.of->waits;
    while (*link) {
      wait *w = *link;
      if (w->at <= current.until) {
        tasks = push(tasks, w->on, w->until);
        *link = w->next;
        free(w);
      } else {
        link = &w->next;
      }
    }
  }
}

// ---- Streams: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html
ENTRY cudaError_t cudaStreamCreateWithPriority(cudaStream_t *handle, unsigned flags, int priority) {
  stream *new = object_new(sizeof *new);
  new->priority = priority;
  new->on = device;
  pthread_mutex_lock(&lock);
  new->next = streams;
  streams = new;
  pthread_mutex_unlock(&lock);
  *handle = (cudaStream_t)new;
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamCreateWithFlags(cudaStream_t *handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

ENTRY cudaError_t cudaStreamCreate(cudaStream_t *handle) {
  return cudaStreamCreateWithPriority(handle, 0, 0);
}

// Events and waits may still name it, so it stays; programs create few.
ENTRY cudaError_t cudaStreamDestroy(cudaStream_t handle) { return cudaSuccess; }

ENTRY cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  *priority = stream_of(handle)->priority;
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *on) {
  *on = (uintptr_t)handle <= 2 ? device : stream_of(handle)->on;
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamQuery(cudaStream_t handle) {
  stream *s = stream_of(handle);
  return atomic_load(&s->done) >= atomic_load(&s->issued) ? cudaSuccess : cudaErrorNotReady;
}

ENTRY cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  stream *s = stream_of(handle);
  pthread_mutex_lock(&lock);
  finish(s, atomic_load(&s->issued));
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

ENTRY cudaError_t cudaDeviceSynchronize(void) {
  pthread_mutex_lock(&lock);
  finish(&defaults[device], atomic_load(&defaults[device].issued));
  for (stream *s = streams; s; s = s->next)
    if (s->on == device)
      finish(s, atomic_load(&s->issued));
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t of, unsigned flags) {
  stream *s = stream_of(handle);
  event *e = (event *)of;
  if (e->capture && atomic_load(&e->of->capture) == e->capture)
    atomic_store(&s->capture, e->capture); // a stream that is captured takes others along
  if (!card.host_ahead || !e->of || e->of == s)
    return cudaSuccess;
  wait *new = object_new(sizeof *new);
  pthread_mutex_lock(&lock);
  if (atomic_load(&e->of->done) >= e->number) {
    free(new);
  } else {
    *new = (wait){atomic_fetch_add(&s->issued, 1) + 1, e->of, e->number, s->waits};
    s->waits = new;
  }
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t call, void *data,
                                        unsigned flags) {
  call(handle, cudaSuccess, data);
  return cudaSuccess;
}

ENTRY cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t call, void *data) {
  call(data);
  return cudaSuccess;
}

// ---- Events: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EVENT.html
ENTRY cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
  *handle = object_new(sizeof(event));
  return cudaSuccess;
}

ENTRY cudaError_t cudaEventCreate(cudaEvent_t *handle) {
  return cudaEventCreateWithFlags(handle, 0);
}

ENTRY cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  free(handle);
  return cudaSuccess;
}

ENTRY cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  event *e = (event *)handle;
  stream *s = stream_of(on);
  pthread_mutex_lock(&lock);
  e->of = s;
  e->capture = atomic_load(&s->capture);
  e->number = card.host_ahead ? atomic_fetch_add(&s->issued, 1) + 1 : 0;
  clock_gettime(CLOCK_MONOTONIC, &e->time);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

ENTRY cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t on, unsigned flags) {
  return cudaEventRecord(handle, on);
}

static bool is_done(const event *e) { return !e->of || atomic_load(&e->of->done) >= e->number; }

ENTRY cudaError_t cudaEventQuery(cudaEvent_t handle) {
  event *e = (event *)handle;
  if (!is_done(e) && seconds() - atomic_load(&busy) > IDLE)
    cudaEventSynchronize(handle);
  return is_done(e) ? cudaSuccess : cudaErrorNotReady;
}

ENTRY cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  event *e = (event *)handle;
  pthread_mutex_lock(&lock);
  if (!is_done(e))
    finish(e->of, e->number);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

// The time that the host took between the two records, and at least the resolution of a GPU's
// clock, so that nobody divides by zero.
ENTRY cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const event *a = (event *)from, *b = (event *)to;
  if (!is_done(a) || !is_done(b))
    return cudaErrorNotReady;
  double passed = (b->time.tv_sec - a->time.tv_sec) * 1e3;
  passed += (b->time.tv_nsec - a->time.tv_nsec) / 1e6;
  *milliseconds = passed > -0.0005 && passed < 0.0005 ? 0.0005 : passed;
  return cudaSuccess;
}

// ---- Graphs: capturing runs through, and notes nothing; a graph that is launched does nothing.
// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__GRAPH.html
ENTRY cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  pthread_mutex_lock(&lock);
  atomic_store(&stream_of(handle)->capture, ++captures);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  pthread_mutex_lock(&lock);
  uint64_t ended = atomic_load(&stream_of(handle)->capture);
  for (int i = 0; i < DEVICES; i++)
    if (atomic_load(&defaults[i].capture) == ended)
      atomic_store(&defaults[i].capture, 0);
  for (stream *s = streams; s; s = s->next)
    if (atomic_load(&s->capture) == ended)
      atomic_store(&s->capture, 0);
  pthread_mutex_unlock(&lock);
  *graph = object_new(8);
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
  bool active = atomic_load(&stream_of(handle)->capture);
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
    *id = atomic_load(&stream_of(handle)->capture);
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
  *instance = object_new(8);
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *instance, cudaGraph_t graph,
                                                unsigned long long flags) {
  return cudaGraphInstantiate(instance, graph, flags);
}

// PyTorch warns of a graph without nodes.
ENTRY cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  if (!nodes)
    *count = 1;
  return cudaSuccess;
}

ENTRY cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t handle) {
  stream_issue(handle);
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
