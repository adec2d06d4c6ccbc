// NCCL's communicators: small messages really travel between the processes of this machine, through
// shared memory; large ones have no values, and no rank waits for them. With card.alone there is
// one process, and the other ranks are copies of it, which would send the same.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/comms.html
#define _GNU_SOURCE
#include "ranks.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define PATIENCE (600 * 20000) // naps until a rank that never comes is an error: ten minutes

static size_t room_bytes(int ranks) {
  return sizeof(room) + ((size_t)ranks + (size_t)ranks * ranks) * COPIED;
}

// Letters, of all communicators, to ranks that have not taken the letter before. They are in one
// list, since a rank that waits in one communicator has to deliver its letters of the others, too.
static letter *unsent;
static pthread_mutex_t post_office = PTHREAD_MUTEX_INITIALIZER;

// Return whether a letter is the first one of its communicator to its rank.
static bool is_first(const letter *l) {
  const letter *earlier = unsent;
  while (earlier != l && (earlier->c != l->c || earlier->to != l->to))
    earlier = earlier->next;
  return earlier == l;
}

static void deliver(void) {
  pthread_mutex_lock(&post_office);
  for (letter **link = &unsent; *link;) {
    letter *l = *link;
    ncclComm_t c = l->c;
    _Atomic size_t *mail = &c->room->mail[c->rank][l->to];
    if (!is_first(l) || atomic_load(mail)) {
      link = &l->next;
      continue;
    }
    memcpy(ranks_mailbox(c, c->rank, l->to), l->data, l->bytes);
    atomic_store(mail, l->bytes + 1); // 0 stands for an empty mailbox
    *link = l->next;
    free(l);
  }
  pthread_mutex_unlock(&post_office);
}

void ranks_post(letter *l) {
  pthread_mutex_lock(&post_office);
  letter **link = &unsent;
  while (*link)
    link = &(*link)->next;
  *link = l;
  pthread_mutex_unlock(&post_office);
  deliver();
}

// Return whether a communicator has letters that their ranks have not taken; drop them on request.
static bool has_unsent(ncclComm_t c, bool forget) {
  bool found = false;
  pthread_mutex_lock(&post_office);
  for (letter **link = &unsent; *link;) {
    letter *l = *link;
    found |= l->c == c;
    if (forget && l->c == c) {
      *link = l->next;
      free(l);
    } else {
      link = &l->next;
    }
  }
  pthread_mutex_unlock(&post_office);
  return found;
}

// Return whether a process has ended: is gone, or waits as a zombie for its parent.
static bool has_ended(int process) {
  char name[64], state = '?';
  snprintf(name, sizeof name, "/proc/%d/stat", process);
  FILE *file = fopen(name, "r");
  if (!file)
    return true;
  int found = fscanf(file, "%*d (%*[^)]) %c", &state);
  fclose(file);
  return found == 1 && state == 'Z';
}

// Sleep a little; return an error if a rank of the room has ended, or after a long time.
ncclResult_t ranks_nap(ncclComm_t c, long *naps) {
  deliver();
  usleep(50);
  if (++*naps > PATIENCE)
    return ncclSystemError;
  for (int i = 0; i < c->ranks && *naps % 20000 == 0; i++) {
    int process = atomic_load(&c->room->processes[i]);
    if (process && has_ended(process))
      return ncclRemoteError;
  }
  return ncclSuccess;
}

// Wait until all ranks are here.
ncclResult_t ranks_meet(ncclComm_t c) {
  ncclResult_t error = ncclSuccess;
  long naps = 0;
  int round = atomic_load(&c->room->round);
  if (atomic_fetch_add(&c->room->arrived, 1) == c->ranks - 1) {
    atomic_store(&c->room->arrived, 0);
    atomic_fetch_add(&c->room->round, 1);
    return ncclSuccess;
  }
  while (!error && atomic_load(&c->room->round) == round)
    error = ranks_nap(c, &naps);
  return error;
}

// ---- Communicators. Each takes memory that PyTorch's allocator does not know: the report has how
// many there are at once, at most.
static _Atomic int present, most;

ENTRY int emulator_communicators(void) { return most; }

static ncclResult_t join(ncclComm_t *made, const char *name, int ranks, int rank) {
  ncclComm_t c = object_new(sizeof *c);
  c->ranks = ranks;
  c->rank = rank;
  snprintf(c->name, NAME, "%s", name);
  *made = c;
  int now = ++present;
  for (int before = most; before < now && !atomic_compare_exchange_weak(&most, &before, now);)
    ;
  if (ranks == 1 || card.alone)
    return ncclSuccess;
  if (ranks > RANKS)
    return ncclInvalidArgument;
  int file = shm_open(c->name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, room_bytes(ranks))) {
    if (file >= 0)
      close(file);
    return ncclSystemError;
  }
  c->room =
      mmap(NULL, room_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (c->room == MAP_FAILED)
    return ncclSystemError;
  atomic_store(&c->room->processes[rank], getpid());
  atomic_fetch_add(&c->room->joined, 1);
  ncclResult_t error = ncclSuccess;
  for (long naps = 0; !error && atomic_load(&c->room->joined) < ranks;)
    error = ranks_nap(c, &naps);
  if (!rank || error)
    shm_unlink(c->name); // all have mapped it; the memory is freed with the last mapping
  return error;
}

ENTRY ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ENTRY ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  unsigned long long random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random)
    return ncclSystemError;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, NAME, "/emulated-%d-%llx", getpid(), random);
  return ncclSuccess;
}

ENTRY ncclResult_t ncclCommInitRank(ncclComm_t *c, int ranks, ncclUniqueId id, int rank) {
  return join(c, id.internal, ranks, rank);
}

ENTRY ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int ranks, ncclUniqueId id, int rank,
                                          ncclConfig_t *config) {
  return join(c, id.internal, ranks, rank);
}

ENTRY ncclResult_t ncclCommInitRankScalable(ncclComm_t *c, int ranks, int rank, int count,
                                            ncclUniqueId *ids, ncclConfig_t *config) {
  return join(c, ids->internal, ranks, rank);
}

// All ranks are in this process, as for nn.DataParallel: they call in turn, in a group.
ENTRY ncclResult_t ncclCommInitAll(ncclComm_t *made, int ranks, const int *devices) {
  for (int rank = 0; rank < ranks; rank++) {
    made[rank] = object_new(sizeof **made);
    made[rank]->ranks = ranks;
    made[rank]->rank = rank;
    present++; // leave() takes one away for each
  }
  return ncclSuccess;
}

// The ranks of the next communicator that is split off, 0 for all: with card.alone no other rank
// states its color, but alone.py knows how many have the same.
static int split_ranks;

ENTRY void emulator_split(int ranks) { split_ranks = ranks; }

// The ranks of the same color, in the order of their keys.
ENTRY ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *made,
                                 ncclConfig_t *config) {
  int ranks = 0, rank = 0;
  c->splits++;
  if (c->room) {
    int choice[] = {color, key};
    memcpy(ranks_slot(c, c->rank), choice, sizeof choice);
    ncclResult_t error = ranks_meet(c);
    for (int i = 0; !error && i < c->ranks; i++) {
      int of_rank[2];
      memcpy(of_rank, ranks_slot(c, i), sizeof of_rank);
      ranks += of_rank[0] == color;
      bool comes_before = of_rank[1] < key || (of_rank[1] == key && i < c->rank);
      rank += of_rank[0] == color && comes_before;
    }
    error = error ? error : ranks_meet(c); // all have read, so slots may change
    if (error)
      return error;
  } else {
    ranks = split_ranks ? split_ranks : c->ranks;
  }
  *made = NULL;
  if (color == NCCL_SPLIT_NOCOLOR)
    return ncclSuccess;
  char name[2 * NAME];
  snprintf(name, sizeof name, "%.40s-%d-%d", c->name, c->splits, color);
  return join(made, name, ranks, rank);
}

static ncclResult_t leave(ncclComm_t c) {
  if (!c)
    return ncclSuccess;
  for (long naps = 0; has_unsent(c, false) && !ranks_nap(c, &naps);)
    ;
  has_unsent(c, true);
  if (c->room)
    munmap(c->room, room_bytes(c->ranks));
  free(c);
  present--;
  return ncclSuccess;
}

ENTRY ncclResult_t ncclCommDestroy(ncclComm_t c) { return leave(c); }
ENTRY ncclResult_t ncclCommAbort(ncclComm_t c) { return leave(c); }
ENTRY ncclResult_t ncclCommFinalize(ncclComm_t c) { return ncclSuccess; }

ENTRY ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ENTRY ncclResult_t ncclCommCount(const ncclComm_t c, int *ranks) {
  *ranks = c->ranks;
  return ncclSuccess;
}

ENTRY ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank) {
  *rank = c->rank;
  return ncclSuccess;
}

ENTRY const char *ncclGetErrorString(ncclResult_t error) {
  return error == ncclRemoteError ? "another process has ended" : error ? "error" : "no error";
}

ENTRY const char *ncclGetLastError(ncclComm_t c) { return ""; }

ENTRY ncclResult_t ncclMemAlloc(void **pointer, size_t bytes) {
  return cudaMalloc(pointer, bytes) ? ncclUnhandledCudaError : ncclSuccess;
}

ENTRY ncclResult_t ncclMemFree(void *pointer) {
  cudaFree(pointer);
  return ncclSuccess;
}

ENTRY ncclResult_t ncclCommRegister(const ncclComm_t c, void *pointer, size_t bytes,
                                    void **handle) {
  *handle = pointer;
  return ncclSuccess;
}

ENTRY ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) { return ncclSuccess; }

size_t ranks_size_of(ncclDataType_t type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return (size_t)type < sizeof sizes / sizeof *sizes ? sizes[type] : 1;
}
