"""Promise: the library in place of CUDA is correct with threads, and accesses no wrong memory."""

import shutil
import subprocess

import pytest
from conftest import NEEDS

from emulated_gpu import build

pytestmark = NEEDS

# Threads take and give memory, copy, record events on streams that wait for each other, capture
# graphs and call collectives, all at once.
PROGRAM = r"""
#include "emulator.h"
#include <assert.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
void emulator_without_values(void);

static void *one_thread(void *unused) {
  cudaStream_t streams[3];
  cudaEvent_t events[3];
  ncclUniqueId id;
  ncclComm_t alone;
  assert(!ncclGetUniqueId(&id) && !ncclCommInitRank(&alone, 1, id, 0));
  for (int i = 0; i < 3; i++)
    assert(!cudaStreamCreate(&streams[i]) && !cudaEventCreate(&events[i]));
  for (int round = 0; round < 300; round++) {
    void *gpu, *pinned;
    float host[64], back[64];
    for (int i = 0; i < 64; i++)
      host[i] = round + i;
    assert(!cudaMalloc(&gpu, 1 + round * 50000) && !cudaHostAlloc(&pinned, sizeof host, 0));
    for (int i = 0; i < 3; i++) {
      assert(!cudaMemcpyAsync(gpu, host, sizeof host, cudaMemcpyDefault, streams[i]));
      assert(!cudaEventRecord(events[i], streams[i]));
      assert(!cudaStreamWaitEvent(streams[(i + 1) % 3], events[i], 0));
    }
    assert(!ncclAllReduce(gpu, gpu, 64, ncclFloat32, ncclSum, alone, streams[0]));
    assert(!ncclAllGather(gpu, gpu, 64, ncclFloat32, alone, streams[0]));
    assert(!cudaMemcpy(pinned, gpu, sizeof host, cudaMemcpyDefault));
    memcpy(back, pinned, sizeof back);
    assert(!memcmp(host, back, sizeof host));
    struct cudaPointerAttributes a;
    assert(!cudaPointerGetAttributes(&a, (char *)pinned + 8) && a.type == cudaMemoryTypeHost);
    cudaGraph_t graph;
    cudaGraphExec_t run;
    enum cudaStreamCaptureStatus status;
    assert(!cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeRelaxed));
    assert(!cudaEventRecord(events[0], streams[0]));
    assert(!cudaStreamWaitEvent(streams[1], events[0], 0));
    assert(!cudaStreamIsCapturing(streams[1], &status) && status == cudaStreamCaptureStatusActive);
    assert(!cudaStreamEndCapture(streams[0], &graph));
    assert(!cudaStreamIsCapturing(streams[1], &status) && status == cudaStreamCaptureStatusNone);
    assert(!cudaGraphInstantiate(&run, graph, 0) && !cudaGraphLaunch(run, streams[0]));
    assert(!cudaGraphExecDestroy(run) && !cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
      assert(!cudaStreamSynchronize(streams[i]) && !cudaEventQuery(events[i]));
    float passed;
    assert(!cudaEventElapsedTime(&passed, events[1], events[2]) && passed != 0);
    called_by_name("a function");
    assert(!cudaFree(gpu) && !cudaFreeHost(pinned));
  }
  for (int i = 0; i < 3; i++)
    assert(!cudaEventDestroy(events[i]));
  assert(!ncclCommDestroy(alone));
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert(!pthread_create(&threads[i], NULL, one_thread, NULL));
  for (int i = 0; i < THREADS; i++)
    assert(!pthread_join(threads[i], NULL));
  assert(memory_used(0) == 0);
  // Sizes are unsigned: nothing may begin at 0 again, or fall below it.
  size_t sizes[] = {SIZE_MAX, SIZE_MAX - MIB, card.bytes + 1}, free_bytes, context = card.context;
  void *large;
  for (int i = 0; i < 3; i++)
    assert(cudaMalloc(&large, sizes[i]) == cudaErrorMemoryAllocation && !memory_used(0));
  assert(!memory_addresses(SIZE_MAX));
  card.context = card.bytes + 1;
  assert(!cudaMemGetInfo(&free_bytes, sizes) && free_bytes == 0);
  assert(cudaMalloc(&large, 1) == cudaErrorMemoryAllocation);
  card.context = context;
  cudaMemPool_t pool;
  uint64_t taken;
  assert(!cudaMalloc(&large, 1) && !cudaFreeAsync(large, 0));
  assert(!cudaDeviceGetDefaultMemPool(&pool, 0));
  assert(!cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &taken) && taken == 0);
  assert(ncclGroupEnd() == ncclInvalidUsage && !ncclGroupStart() && !ncclGroupEnd());
  uint16_t halves[] = {0x0001, 0x3c00, 0x7bff, 0x8400};  // subnormal, 1, the largest, negative
  ncclUniqueId id = {0};
  ncclComm_t c;
  assert(!ncclCommInitRank(&c, 1, id, 0));
  uint16_t same[4];
  assert(!ncclAllReduce(halves, same, 4, ncclFloat16, ncclMax, c, 0));
  assert(!memcmp(halves, same, sizeof same));
  assert(!ncclAllReduce(halves, same, 4, ncclBfloat16, ncclMax, c, 0));
  assert(!memcmp(halves, same, sizeof same));
  assert(!ncclCommDestroy(c));
  // With an old PyTorch no kernel has written what a program asks: it is told that all is well.
  bool truth = false;
  assert(!cudaMalloc(&large, 1) && !cudaMemcpy(large, &truth, 1, cudaMemcpyDefault));
  assert(!cudaMemcpy(&truth, large, 1, cudaMemcpyDefault) && !truth);
  emulator_without_values();
  assert(!cudaMemcpy(&truth, large, 1, cudaMemcpyDefault) && truth);
  puts("right");
  return 0;
}
"""


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(sanitizer, tmp_path):
    (tmp_path / "program.c").write_text(PROGRAM)
    include = []
    for folder in (build.SOURCES / "headers", build.SOURCES, *build.headers(build.torch_folder())):
        include += ["-I", folder]
    # host.c replaces functions of the C library, as sanitizers do.
    files = (file for file in build.SOURCES.glob("**/*.c") if file.name != "host.c")
    sources = [*files, tmp_path / "program.c"]
    flags = ["-std=gnu11", "-g", "-O1", *build.WARNINGS, f"-fsanitize={sanitizer}"]
    command = ["cc", *flags, *include, *sources, "-o", tmp_path / "program", *build.LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert not done.returncode and "warning" not in done.stderr, done.stderr[-3000:]
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []  # what the thread sanitizer needs
    env = {"ASAN_OPTIONS": "detect_leaks=0"}
    command = [*fixed, str(tmp_path / "program")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.stdout == "right\n" and not done.stderr, (done.stdout + done.stderr)[-3000:]
