// NCCL's messages between two ranks. In a group, all are sent before the first one is received.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/p2p.html
#include "ranks.h"
#include <stdlib.h>
#include <string.h>

typedef struct call {
  bool is_send;
  void *at;
  size_t bytes;
  int peer;
  ncclComm_t c;
  struct call *next;
} call;
static _Thread_local int groups;
static _Thread_local unsigned long last_group;
static _Thread_local call *calls, **last_call;
// With card.alone, the message of this group that a copy of this rank would send to this rank.
static _Thread_local const call *to_self;

static void send(const call *s) {
  ncclComm_t c = s->c;
  if (s->peer == c->rank)
    to_self = s;
  if (s->bytes > COPIED || !c->room)
    return;
  letter *new = object_new(sizeof *new + s->bytes);
  new->c = c;
  new->to = s->peer;
  new->bytes = s->bytes;
  memcpy(new->data, s->at, s->bytes);
  ranks_post(new);
}

static ncclResult_t receive(const call *r) {
  ncclComm_t c = r->c;
  ncclResult_t error = ncclSuccess;
  if (r->bytes > COPIED)
    return error; // it has no values
  if (!c->room) {
    if (to_self && to_self->bytes == r->bytes)
      memmove(r->at, to_self->at, r->bytes);
    return error;
  }
  _Atomic size_t *mail = &c->room->mail[r->peer][c->rank];
  for (long naps = 0; !error && !atomic_load(mail);)
    error = ranks_nap(c, &naps);
  if (error)
    return error;
  size_t bytes = atomic_load(mail) - 1;
  memcpy(r->at, ranks_mailbox(c, r->peer, c->rank), bytes < r->bytes ? bytes : r->bytes);
  atomic_store(mail, 0);
  return ncclSuccess;
}

ENTRY ncclResult_t ncclGroupStart(void) {
  if (!groups++)
    last_group++;
  return ncclSuccess;
}

unsigned long ranks_group(void) { return groups ? last_group : 0; }

ENTRY ncclResult_t ncclGroupEnd(void) {
  ncclResult_t error = ncclSuccess;
  if (!groups) // nothing has begun: below 0, no group would ever end
    return ncclInvalidUsage;
  if (--groups)
    return error;
  for (call *s = calls; s; s = s->next)
    if (s->is_send)
      send(s);
  for (call *r = calls; r && !error; r = r->next)
    if (!r->is_send)
      error = receive(r);
  while (calls) {
    call *done = calls;
    calls = done->next;
    free(done);
  }
  to_self = NULL;
  last_call = NULL;
  return error;
}

// Add a call to the open group; outside of one, it is a group of its own.
static ncclResult_t add(call new) {
  ncclGroupStart();
  call *kept = object_new(sizeof *kept);
  *kept = new;
  last_call = last_call ? last_call : &calls;
  *last_call = kept;
  last_call = &kept->next;
  return ncclGroupEnd();
}

ENTRY ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t c, cudaStream_t stream) {
  stream_work(stream, work_of_sending((double)count * ranks_size_of(type)));
  return add((call){true, (void *)from, count * ranks_size_of(type), peer, c, NULL});
}

ENTRY ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                            cudaStream_t stream) {
  stream_work(stream, work_of_sending((double)count * ranks_size_of(type)));
  return add((call){false, to, count * ranks_size_of(type), peer, c, NULL});
}

// Every rank sends `count` values to every rank.
ENTRY ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type,
                                ncclComm_t c, cudaStream_t stream) {
  size_t bytes = count * ranks_size_of(type);
  ncclGroupStart();
  for (int peer = 0; peer < c->ranks; peer++) {
    ncclSend((const char *)from + peer * bytes, count, type, peer, c, stream);
    ncclRecv((char *)to + peer * bytes, count, type, peer, c, stream);
  }
  return ncclGroupEnd();
}
