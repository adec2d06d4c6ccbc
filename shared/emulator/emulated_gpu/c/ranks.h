// The ranks of NCCL's communicators, and how they meet.
#ifndef RANKS_H
#define RANKS_H

#include "emulator.h"

// Without it, older versions of NCCL's header hide bfloat16 from C.
#ifndef __CUDA_BF16_TYPES_EXIST__
#define __CUDA_BF16_TYPES_EXIST__
#endif
#include <nccl.h>

#define NAME 64   // characters of a room's name
#define RANKS 256 // of a communicator, where several processes meet

// What the ranks of a communicator share. Each has a slot for what it contributes, and one for each
// rank that it sends to; untouched pages take no memory.
typedef struct room {
  _Atomic int joined, arrived, round;
  _Atomic int processes[RANKS];
  _Atomic size_t mail[RANKS][RANKS]; // bytes on the way from a rank to another, plus one
  char slots[];                      // COPIED bytes for each rank, then for each pair of them
} room;

typedef struct letter {
  ncclComm_t c;
  int to;
  size_t bytes;
  struct letter *next;
  char data[];
} letter;

struct ncclComm {
  int ranks, rank, splits;
  char name[NAME];
  room *room; // NULL for a rank without others
};

// Return the number of the group of calls that has begun, 0 outside of one.
unsigned long ranks_group(void);

static inline char *ranks_slot(const ncclComm_t c, int rank) {
  return c->room->slots + rank * COPIED;
}

static inline char *ranks_mailbox(const ncclComm_t c, int from, int to) {
  return c->room->slots + (c->ranks + (size_t)from * c->ranks + to) * COPIED;
}

// Wait until all ranks of a communicator have called this.
ncclResult_t ranks_meet(ncclComm_t c);
// Deliver a letter, which is freed then, as soon as its rank has taken the one before.
void ranks_post(letter *l);
// Sleep a little; return an error if a rank has ended, or after a long time.
ncclResult_t ranks_nap(ncclComm_t c, long *naps);
// Return the bytes of a value.
size_t ranks_size_of(ncclDataType_t type);

#endif
