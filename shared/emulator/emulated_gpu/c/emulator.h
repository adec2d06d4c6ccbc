// Shared by the files of the emulator: the card's properties, one lock, and their functions.
#ifndef EMULATOR_H
#define EMULATOR_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENTRY __attribute__((visibility("default")))
#define DEVICES 64 // at most, in a process
#define MIB ((size_t)1 << 20)
#define COPIED MIB // bytes of the largest copy that really happens

// The card, from the environment that launch.py sets.
extern struct card {
  char name[256];
  size_t bytes;                        // of memory
  size_t context;                      // bytes that a CUDA context takes from them
  int capability;                      // 80 is 8.0
  int multiprocessors, threads, cache; // threads resident on each, bytes of L2 cache
  int devices;
  int64_t launch;            // ns that the host takes to start a piece of work
  double fp32, tf32, half;   // floating-point operations per ns
  double memory, link, gpus; // bytes per ns: its memory, to the host, to other GPUs
  double cycles;             // of the clock per ns, of all multiprocessors together
  bool ascending;            // addresses ascend, as in traces from Windows
  bool alone;                // the other ranks of a communicator are copies of this one
} card;

extern pthread_mutex_t lock; // of all tables here
extern _Thread_local int device;

// Count bytes of a device's memory as used, or as free again; the lock is held. The first returns
// whether there was room.
size_t memory_free(int on);
bool memory_take(int on, size_t bytes);
void memory_give(int on, size_t bytes);
size_t memory_used(int on);
// Return addresses that nothing else has, without memory behind them until they are written.
uintptr_t memory_addresses(size_t bytes);
bool memory_on_device(const void *pointer);
// The number of the device that has it; for addresses that belong to none, the current one.
int memory_device(const void *pointer);
// Copy between host and device if it is small: what is large has no values.
void memory_copy(void *to, const void *from, size_t bytes);
// Return the next number that sizes.py has left for what reads one from the device, or another.
int64_t memory_answer(int64_t otherwise);

// A piece of work, and how many ns it takes: of a kernel of so many threads, if it moves bytes and
// computes little, of copying bytes, of sending them between GPUs, and of a product of matrices
// that has so many operations (`along`: both matrices lie in memory along the sums).
typedef struct work {
  const char *kind; // "product", "kernel", "copy_in" to the card, "copy_out" or "send"
  double ns;
} work;
#define LEAST 1500.0 // ns of a kernel that has hardly anything to do
work work_of_threads(dim3 grid, dim3 block);
work work_of_copying(bool inside, bool pageable, size_t bytes);
work work_of_sending(double bytes);
work work_of_product(cudaDataType type, bool tf32, bool along, double flop);
// A copy between these addresses: `inside` of a card, or with the host, whose memory is `pageable`
// if it is not pinned: then it is copied in pieces, through memory that is.
work memory_copying(const void *to, const void *from, size_t bytes);
// Add it to a stream.
void stream_work(cudaStream_t stream, work piece);
// Add a kernel of a library, of whose work only its operation knows; the handle begins with its
// stream, 0 is the default one.
void library_work(const void *handle);
// Whether an operation runs in this thread that says at its end how long it takes.
bool stream_knows_operation(void);
// The number of the capture that a stream takes part in, 0 for none; and the end of a capture,
// which returns the ns of the work in it.
_Atomic uint64_t *stream_capture(cudaStream_t stream);
double streams_end_capture(uint64_t number);

// Remember, for the report, that a function was called of which nothing but its name is known, or
// whose result is an assumption.
void called_by_name(const char *name);

// Blocks of threads that are resident on a multiprocessor, at most.
int blocks_per_multiprocessor(void);

// Return a new object that stands for something that a library keeps; it begins with zeros.
void *object_new(size_t bytes);

#define OBJECT 512 // bytes of a handle or a descriptor; few have contents

// Define a function that creates an object, and succeeds.
#define CREATES(library, function, type)                                                           \
  ENTRY library##Status_t function(type *object) {                                                 \
    *object = object_new(OBJECT);                                                                  \
    return (library##Status_t)0;                                                                   \
  }

#endif
