// NCCL's collectives: computed where messages are small, since only these have values.
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html
#include "ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Numbers of 16 bits: https://en.wikipedia.org/wiki/Half-precision_floating-point_format, and the
// upper half of a float.
static double from_fp16(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent     ? ldexp(1024 + fraction, exponent - 25)
                               : ldexp(fraction, -24);
  return bits & 0x8000 ? -size : size;
}

static uint16_t to_fp16(double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  int exponent;
  x = fabs(x);
  if (isnan(x))
    return 0x7e00;
  if (x >= 65520)
    return sign | 0x7c00;
  frexp(x, &exponent); // x is in [0.5, 1) * 2**exponent
  exponent = exponent < -13 ? -13 : exponent;
  int fraction = (int)rint(ldexp(x, 11 - exponent)); // of 1024 and more, if it is not subnormal
  return sign | (fraction < 1024 ? fraction : ((exponent + 13) << 10) + fraction);
}

static double from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// A value of any type as a double, exact for counts up to 2^53.
static double value(const void *at, size_t i, ncclDataType_t type) {
  switch (type) {
  case ncclInt8: return ((const int8_t *)at)[i];
  case ncclInt32: return ((const int32_t *)at)[i];
  case ncclUint32: return ((const uint32_t *)at)[i];
  case ncclInt64: return ((const int64_t *)at)[i];
  case ncclUint64: return ((const uint64_t *)at)[i];
  case ncclFloat32: return ((const float *)at)[i];
  case ncclFloat64: return ((const double *)at)[i];
  case ncclFloat16: return from_fp16(((const uint16_t *)at)[i]);
  case ncclBfloat16: return from_bf16(((const uint16_t *)at)[i]);
  default: return ((const uint8_t *)at)[i];
  }
}

static void set(void *at, size_t i, ncclDataType_t type, double x) {
  switch (type) {
  case ncclInt8: ((int8_t *)at)[i] = x; break;
  case ncclInt32: ((int32_t *)at)[i] = x; break;
  case ncclUint32: ((uint32_t *)at)[i] = x; break;
  case ncclInt64: ((int64_t *)at)[i] = x; break;
  case ncclUint64: ((uint64_t *)at)[i] = x; break;
  case ncclFloat32: ((float *)at)[i] = x; break;
  case ncclFloat64: ((double *)at)[i] = x; break;
  case ncclFloat16: ((uint16_t *)at)[i] = to_fp16(x); break;
  case ncclBfloat16: ((uint16_t *)at)[i] = to_bf16(x); break;
  default: ((uint8_t *)at)[i] = x;
  }
}

static double joined(double a, double b, ncclRedOp_t operation) {
  switch (operation) {
  case ncclProd: return a * b;
  case ncclMax: return a > b ? a : b;
  case ncclMin: return a < b ? a : b;
  default: return a + b;
  }
}

// Reduce `count` values, which begin `first` values into what each rank has put into its slot.
// A rank without others adds its values, at `from`, once for each copy of it.
static void reduce(ncclComm_t c, const void *from, void *to, size_t first, size_t count,
                   ncclDataType_t type, ncclRedOp_t operation) {
  for (size_t i = 0; i < count; i++) {
    double sum = value(c->room ? ranks_slot(c, 0) : from, first + i, type);
    double copy = sum;
    for (int rank = 1; rank < c->ranks; rank++)
      sum = joined(sum, c->room ? value(ranks_slot(c, rank), first + i, type) : copy, operation);
    set(to, i, type, operation == ncclAvg ? sum / c->ranks : sum);
  }
}

// Put this rank's values where the others see them; return whether the message is small.
static bool show(ncclComm_t c, const void *from, size_t bytes, ncclResult_t *error) {
  *error = ncclSuccess;
  if (bytes > COPIED)
    return false;
  if (c->room) {
    memcpy(ranks_slot(c, c->rank), from, bytes);
    *error = ranks_meet(c);
  }
  return !*error;
}

// Wait until all ranks have read the values that show() has put there.
static ncclResult_t seen(ncclComm_t c) { return c->room ? ranks_meet(c) : ncclSuccess; }

ENTRY ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                 ncclRedOp_t operation, ncclComm_t c, cudaStream_t stream) {
  ncclResult_t error;
  size_t bytes = count * ranks_size_of(type);
  stream_work(stream, work_of_sending(2.0 * bytes * (c->ranks - 1) / c->ranks));
  if (!show(c, from, bytes, &error))
    return error;
  void *sum = object_new(bytes + 1); // `from` may be `to`
  reduce(c, from, sum, 0, count, type, operation);
  memcpy(to, sum, bytes);
  free(sum);
  return seen(c);
}

ENTRY ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                              ncclRedOp_t operation, int root, ncclComm_t c, cudaStream_t stream) {
  void *result = to ? to : object_new(count * ranks_size_of(type) + 1);
  ncclResult_t error = ncclAllReduce(from, result, count, type, operation, c, stream);
  if (!to)
    free(result);
  return error;
}

ENTRY ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                     ncclRedOp_t operation, ncclComm_t c, cudaStream_t stream) {
  ncclResult_t error;
  stream_work(stream, work_of_sending((double)count * ranks_size_of(type) * (c->ranks - 1)));
  if (!show(c, from, count * ranks_size_of(type) * c->ranks, &error))
    return error;
  void *sum = object_new(count * ranks_size_of(type) + 1);
  reduce(c, from, sum, c->rank * count, count, type, operation);
  memcpy(to, sum, count * ranks_size_of(type));
  free(sum);
  return seen(c);
}

ENTRY ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                                 ncclComm_t c, cudaStream_t stream) {
  ncclResult_t error;
  size_t bytes = count * ranks_size_of(type);
  stream_work(stream, work_of_sending((double)bytes * (c->ranks - 1)));
  if (!show(c, from, bytes, &error))
    return error;
  char *all = object_new(bytes * c->ranks + 1);
  for (int rank = 0; rank < c->ranks; rank++)
    memcpy(all + rank * bytes, c->room ? ranks_slot(c, rank) : from, bytes);
  memcpy(to, all, bytes * c->ranks);
  free(all);
  return seen(c);
}

ENTRY ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                                 int root, ncclComm_t c, cudaStream_t stream) {
  ncclResult_t error;
  size_t bytes = count * ranks_size_of(type);
  stream_work(stream, work_of_sending(bytes));
  if (!show(c, c->rank == root ? from : to, bytes, &error))
    return error;
  // PyTorch gathers a list of tensors by a group of broadcasts, one from each rank. With card.alone
  // the other ranks send what this one has sent in the same group.
  static _Thread_local struct {
    const void *from;
    size_t bytes;
    unsigned long group;
  } sent;
  if (c->rank == root) {
    sent.from = from;
    sent.bytes = bytes;
    sent.group = ranks_group();
  }
  bool is_copy = sent.group && sent.group == ranks_group() && sent.bytes == bytes;
  if (c->room)
    memcpy(to, ranks_slot(c, root), bytes);
  else if (c->rank == root || is_copy)
    memmove(to, sent.from, bytes);
  return seen(c);
}

ENTRY ncclResult_t ncclBcast(void *at, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                             cudaStream_t stream) {
  return ncclBroadcast(at, at, count, type, root, c, stream);
}

// Values are not scaled before they are added.
ENTRY ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *operation, void *scalar,
                                            ncclDataType_t type, ncclScalarResidence_t where,
                                            ncclComm_t c) {
  *operation = ncclSum;
  return ncclSuccess;
}

ENTRY ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t c) { return ncclSuccess; }
