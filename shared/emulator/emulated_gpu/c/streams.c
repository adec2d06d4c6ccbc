// Streams and events: they decide when work counts as done. Nothing is computed.
#define _GNU_SOURCE // for dladdr()
#include "emulator.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Time is virtual. The host's time advances by card.launch with each piece of work that it starts,
// and to the end of the work that it waits for; a stream is busy until its last piece of work ends.
// So results do not depend on how fast this machine is.
// Pieces of work that a stream holds; then the host waits until one has ended. "About 1000":
// https://forums.developer.nvidia.com/t/cuda-stream-are-blocked-when-luanch-lots-of-kernels-1000/68937
#define QUEUE 1024
typedef struct stream {
  _Atomic int64_t until; // in ns
  int64_t ends[QUEUE];   // of the last pieces of work
  unsigned issued;
  _Atomic uint64_t capture; // the number of the capture that it takes part in, 0 for none
  const char *kind;         // of its last piece of work
  int priority, on;
  struct stream *next; // in the list of all
} stream;
typedef struct event {
  stream *of;
  _Atomic int64_t at; // in ns
  uint64_t capture;
} event;

static stream defaults[DEVICES]; // the default stream of each device
static stream *streams;          // all others
static _Atomic int64_t host;     // in ns

// A log of the pieces of work, a line each: kind, stream, beginning and end in ns; and the number
// of pieces so far. The last one is not written yet, since its operation may lengthen it.
static FILE *pieces;
static long issued;
static struct {
  const char *kind;
  stream *on;
  int64_t begin, end;
} last;
static double captured;             // ns of work, since a capture began
static int64_t busy_until, busy_ns; // when any stream is at work, and for how long some was

static void write_last(void) {
  if (pieces && last.on)
    fprintf(pieces, "%s %p %ld %ld\n", last.kind, last.on, last.begin, last.end);
  last.on = NULL;
}

ENTRY void emulator_log(const char *path) { pieces = fopen(path, "w"); }

// After this, the file has all that was issued so far.
ENTRY long emulator_issued(void) {
  pthread_mutex_lock(&lock);
  write_last();
  if (pieces)
    fflush(pieces);
  pthread_mutex_unlock(&lock);
  return issued;
}

// 0, cudaStreamLegacy and cudaStreamPerThread name the default stream.
static stream *stream_of(cudaStream_t handle) {
  return (uintptr_t)handle <= 2 ? &defaults[device] : (stream *)handle;
}

__attribute__((constructor)) static void number_defaults(void) {
  for (int i = 0; i < DEVICES; i++)
    defaults[i].on = i;
}

// The stream after this one, of those that a device may have: its default one is the first.
static stream *after(stream *s) { return s == &defaults[s->on] ? streams : s->next; }

// When the host has last launched something. A thread that asks whether work is done more than IDLE
// seconds after the last launch is treated as waiting.
#define IDLE 1     // second
#define ASKED 1000 // ns of the host for an answer: so a loop that asks until work is done ends
static _Atomic time_t busy;
// Whether this thread has launched anything. PyTorch's watchdog of NCCL's work has not. It queries
// every 100 ms, and PyTorch keeps the memory of work that the program does not wait for, such as
// that of DDP's buckets, until the watchdog has seen its end. Memory must not depend on how fast
// this machine is, so for the watchdog no work ends before the host is idle or the program ends. On
// a GPU it may end sooner.
static _Thread_local bool starts;
static _Atomic bool refused, ended;

static time_t seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

// Count the time in which any stream is at work. Pieces come in the order in which the host starts
// them, and none begins before that: so of each, only what lies after all earlier ones is new.
static void count_busy(int64_t begin, int64_t end) {
  if (end > busy_until)
    busy_ns += end - later(begin, busy_until);
  busy_until = later(busy_until, end);
}

// Whether two pieces of work share the card's multiprocessors, or the same links.
static bool share(const char *kind, const char *other) {
  bool links = *kind == 'c' || *kind == 's'; // copies and sends
  return links ? !strcmp(kind, other) : *other != 'c' && *other != 's';
}

// Let a stream work for some ns, in all of which but `alone` it fills what it works with. So other
// streams that are at work then, and share it, end later.
static void occupy(stream *s, int64_t begin, int64_t ns, int64_t alone) {
  s->until = s->ends[(s->issued - 1) % QUEUE] = begin + ns;
  count_busy(begin, s->until);
  for (stream *o = &defaults[s->on]; o && ns > alone; o = after(o)) {
    bool works = o != s && o->on == s->on && o->kind && o->until > begin;
    if (!works || !share(s->kind, o->kind))
      continue;
    int64_t until = o->until + sooner(ns - alone, o->until - begin);
    count_busy(o->until, until);
    o->until = until;
  }
}

// What this thread has issued: operations at work, one within the other; pieces of work; ns that
// these take; and the stream of the last one.
static _Thread_local struct {
  int operations;
  double ns;
  stream *on;
} own;

bool stream_knows_operation(void) { return own.operations > 0; }

void stream_work(cudaStream_t handle, work piece) {
  atomic_store(&busy, seconds());
  starts = true;
  stream *s = stream_of(handle);
  own.ns += piece.ns;
  own.on = s;
  pthread_mutex_lock(&lock);
  if (atomic_load(&s->capture)) { // it is not done now
    captured += piece.ns;
    pthread_mutex_unlock(&lock);
    return;
  }
  // The oldest entry of a full queue, whose work has to end first, becomes that of this piece.
  host = later(host + card.launch, s->ends[s->issued++ % QUEUE]);
  int64_t begin = later(s->until, host);
  s->kind = piece.kind;
  occupy(s, begin, (int64_t)piece.ns, (int64_t)LEAST);
  issued++;
  write_last();
  last.kind = piece.kind;
  last.on = s;
  last.begin = begin;
  last.end = s->until;
  pthread_mutex_unlock(&lock);
}

void library_work(const void *handle) {
  stream_work(handle ? *(const cudaStream_t *)handle : 0, (work){"kernel", LEAST});
}

// ---- Operations: PyTorch's own kernels say nothing about what they do, so inside/work.py does
// when an operation ends, and its last piece of work is lengthened to that.

// Return the ns of what this thread has issued, before an operation begins.
ENTRY double emulator_begin_operation(void) {
  own.operations++;
  return own.ns;
}

// Return the ns of what it has issued since then.
ENTRY double emulator_end_operation(double before) {
  own.operations--;
  return own.ns - before;
}

ENTRY void emulator_lengthen(double ns) {
  stream *s = own.on;
  own.ns += ns;
  pthread_mutex_lock(&lock);
  if (atomic_load(&s->capture)) {
    captured += ns;
    pthread_mutex_unlock(&lock);
    return;
  }
  occupy(s, s->until, (int64_t)ns, 0);
  if (last.on == s)
    last.end = s->until;
  pthread_mutex_unlock(&lock);
}

// Let the host's time pass in Python, as long as it takes to start so many pieces of work.
ENTRY void emulator_host_works(double launches) {
  pthread_mutex_lock(&lock);
  host += (int64_t)(launches * card.launch);
  pthread_mutex_unlock(&lock);
}

// The time at which all that was issued so far has ended, in ns, the ns of it in which any stream
// was at work, and the number of pieces.
ENTRY void emulator_times(int64_t times[3]) {
  pthread_mutex_lock(&lock);
  times[0] = later(host, busy_until);
  times[1] = busy_ns;
  times[2] = issued;
  pthread_mutex_unlock(&lock);
}

// Advance the host's time to the end of what it waits for.
static void wait_until(int64_t time) {
  pthread_mutex_lock(&lock);
  host = later(host, time);
  pthread_mutex_unlock(&lock);
}

// Return whether a time has passed, for a thread that asks, which takes the host some ns.
static cudaError_t ask(int64_t time, int64_t ns) {
  bool idle = atomic_load(&ended) || seconds() - atomic_load(&busy) > IDLE;
  if (!starts) { // its questions take the program no time
    if (!idle)
      atomic_store(&refused, true);
    return idle ? cudaSuccess : cudaErrorNotReady;
  }
  if (time <= host)
    return cudaSuccess;
  wait_until(idle ? time : host + ns);
  return idle ? cudaSuccess : cudaErrorNotReady;
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

// Events may still refer to the stream, so it stays; programs create few.
ENTRY cudaError_t cudaStreamDestroy(cudaStream_t handle) { return cudaSuccess; }

ENTRY cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  *priority = stream_of(handle)->priority;
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *on) {
  *on = stream_of(handle)->on;
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return ask(stream_of(handle)->until, ASKED);
}

ENTRY cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  wait_until(stream_of(handle)->until);
  return cudaSuccess;
}

ENTRY cudaError_t cudaDeviceSynchronize(void) {
  int64_t until = 0;
  pthread_mutex_lock(&lock);
  for (stream *s = &defaults[device]; s; s = after(s))
    until = s->on == device ? later(until, s->until) : until;
  pthread_mutex_unlock(&lock);
  wait_until(until);
  return cudaSuccess;
}

ENTRY cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t of, unsigned flags) {
  stream *s = stream_of(handle);
  event *e = (event *)of;
  if (e->capture && atomic_load(&e->of->capture) == e->capture)
    atomic_store(&s->capture, e->capture); // a capture includes streams that wait for it
  pthread_mutex_lock(&lock);
  s->until = later(s->until, e->at);
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
  starts = true;
  pthread_mutex_lock(&lock);
  e->of = s;
  e->capture = atomic_load(&s->capture);
  e->at = later(s->until, host);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

ENTRY cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t on, unsigned flags) {
  return cudaEventRecord(handle, on);
}

// Blocks that another stream was recorded on: PyTorch's allocator keeps them, when the program has
// freed them, until that stream's event is done. So how far the host is ahead decides about memory.
// Only the allocator's own library queries events for that, a few at each allocation.
static _Atomic bool kept;

static bool is_allocator(const void *caller) {
  static _Thread_local const void *last; // the same as before, mostly: dladdr() takes long
  static _Thread_local bool found;
  Dl_info library;
  if (caller != last)
    found = dladdr(caller, &library) && strstr(library.dli_fname, "libc10_cuda");
  last = caller;
  return found;
}

ENTRY bool emulator_kept(void) { return atomic_load(&kept); }

ENTRY cudaError_t cudaEventQuery(cudaEvent_t handle) {
  bool is_for_memory = is_allocator(__builtin_return_address(0));
  if (is_for_memory)
    atomic_store(&kept, true);
  return ask(((event *)handle)->at, is_for_memory ? 0 : ASKED);
}

// The program ends. PyTorch's watchdog may still keep work that it has not seen end, and must not
// free it after PyTorch has gone, so it gets the time of three more queries.
ENTRY void emulator_end(void) {
  atomic_store(&ended, true);
  if (atomic_load(&refused))
    usleep(300000);
}

ENTRY cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  wait_until(((event *)handle)->at);
  return cudaSuccess;
}

// The time between two records is at least the resolution of a GPU's events, so that programs can
// divide by it.
ENTRY cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const event *a = (event *)from, *b = (event *)to;
  if (later(a->at, b->at) > host)
    return cudaErrorNotReady;
  double passed = (b->at - a->at) / 1e6;
  *milliseconds = passed > -0.0005 && passed < 0.0005 ? 0.0005 : passed;
  return cudaSuccess;
}

// ---- Streams that take part in capturing a graph: graphs.c has the rest.
_Atomic uint64_t *stream_capture(cudaStream_t handle) { return &stream_of(handle)->capture; }

double streams_end_capture(uint64_t number) {
  pthread_mutex_lock(&lock);
  double ns = captured;
  captured = 0;
  for (int i = 0; i < DEVICES; i++)
    if (atomic_load(&defaults[i].capture) == number)
      atomic_store(&defaults[i].capture, 0);
  for (stream *s = streams; s; s = s->next)
    if (atomic_load(&s->capture) == number)
      atomic_store(&s->capture, 0);
  pthread_mutex_unlock(&lock);
  return ns;
}
